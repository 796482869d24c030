"""Programs run: values, state in place, refusals of other shapes."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from optimum_neuron.compiler.lower import aten_function, lower, probe_compiler
from optimum_neuron.errors import ShapeError
from optimum_neuron.runtime import Executor
from optimum_neuron.runtime.executor import check_inputs
from tests.programs import compile_module, spec, weights_of


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return torch.tanh(self.linear(x) + total)


class Stack(nn.Module):
    """Equal layers, each with a state, and a constant of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.register_buffer("shift", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor, totals: list[torch.Tensor]) -> torch.Tensor:
        x = x + y + self.shift
        for layer, total in zip(self.layers, totals, strict=True):
            x = layer(x, total)
        return x


@pytest.fixture(scope="module")
def stack():
    torch.manual_seed(0)
    return Stack()


@pytest.fixture(scope="module")
def executor(stack):
    inputs = {"x": spec(2, 4), "y": spec(1, 4)}
    program = compile_module(stack, inputs, states={f"total.{i}": spec(2, 4) for i in range(3)}).program
    functions = {name: aten_function(subprogram.body) for name, subprogram in program.subprograms.items()}
    return Executor(program, functions, weights_of(program, stack))


def inputs(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 4, generator=generator), torch.randn(1, 4, generator=generator)]


@pytest.mark.full(days=6)
@pytest.mark.skipif(probe_compiler() is None, reason="needs a C++ compiler")
def test_host_code_gets_inputs_in_compiled_layout(tmp_path):
    model = nn.Linear(8, 4)
    program = compile_module(model, {"x": spec(2, 8)}).program
    host = lower(program, optlevel="2", root=tmp_path)
    executor = Executor(program, host.functions, weights_of(program, model))
    turned = torch.randn(8, 2).t()
    same(executor.run(next(iter(program.graphs)), [turned])["output"], model(turned))


def same(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


def test_calls_update_state_like_module(executor, stack):
    state, totals = executor.new_state(), [torch.zeros(2, 4) for _ in range(3)]
    places = [tensor.data_ptr() for tensor in state]
    for seed in range(3):
        with torch.no_grad():
            expected = stack(*inputs(seed), totals)
        same(executor.run("graph", inputs(seed), state)["output"], expected)
        for tensor, total in zip(state, totals, strict=True):
            same(tensor, total)
    assert [tensor.data_ptr() for tensor in state] == places


def test_new_state_is_zero_with_program_shapes(executor):
    state = executor.new_state()
    assert [(tuple(t.shape), t.dtype, t.abs().max().item()) for t in state] == [((2, 4), torch.float32, 0.0)] * 3


def test_one_program_serves_several_sets_of_state(executor):
    one, other = executor.new_state(), executor.new_state()
    first = executor.run("graph", inputs(0), one)["output"]
    executor.run("graph", inputs(1), one)
    same(executor.run("graph", inputs(0), other)["output"], first)


def test_trace_has_results_of_every_call_with_its_place(executor):
    trace = executor.trace("graph", inputs(0), executor.new_state())
    paths = [path for path, _ in trace]
    assert [path for path in paths if path.startswith("layers.")] == ["layers.0", "layers.1", "layers.2"]
    same(dict(trace)["layers.2"][0], executor.run("graph", inputs(0), executor.new_state())["output"])


X, Y = "x is float32[3, 4], compiled for float32[2, 4]", "y is int64[1, 4], compiled for float32[1, 4]"


@pytest.mark.parametrize(
    ("wrong", "problems"),
    [
        ([torch.zeros(3, 4), torch.zeros(1, 4, dtype=torch.int64)], [X, Y]),
        ([torch.zeros(2, 4)], ["1 inputs, compiled for 2 (x, y)"]),
    ],
)
def test_all_differing_inputs_are_named_and_state_is_unchanged(executor, wrong, problems):
    state = executor.new_state()
    with pytest.raises(ShapeError) as excinfo:
        executor.run("graph", wrong, state)
    assert excinfo.value.details["problems"] == problems and all(not tensor.any() for tensor in state)
    check_inputs(executor.program.graphs["graph"], inputs(0))


def test_intermediate_values_live_until_their_last_use(stack):
    inputs_ = {"x": spec(2, 4), "y": spec(1, 4)}
    program = compile_module(stack, inputs_, states={f"total.{i}": spec(2, 4) for i in range(3)}).program
    objects: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def watched(function):
        def call(arguments):
            alive.append(sum(one() is not None for one in objects))
            results = function(arguments)
            objects.extend(map(weakref.ref, results))
            return results

        return call

    functions = {name: watched(aten_function(one.body)) for name, one in program.subprograms.items()}
    executor = Executor(program, functions, weights_of(program, stack))
    (result,) = executor.run(next(iter(program.graphs)), inputs(0), executor.new_state()).values()
    assert len(alive) >= 4 and max(alive) == 1, "each call reads the result of the one before"
    assert [one() for one in objects if one() is not None] == [result]


def test_weights_are_not_copied(stack):
    """Nothing is copied at load: a change of the bound tensor is seen, as with a mapped file."""
    program = compile_module(nn.Linear(4, 2), {"x": spec(3, 4)}).program
    functions = {name: aten_function(subprogram.body) for name, subprogram in program.subprograms.items()}
    weights = {name: torch.zeros(s.shape) for name, s in program.weights.items()}
    executor = Executor(program, functions, weights)
    assert not executor.run("graph", [torch.ones(3, 4)])["output"].any()
    weights["bias"].fill_(7)
    assert (executor.run("graph", [torch.ones(3, 4)])["output"] == 7).all()
