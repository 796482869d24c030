"""Stacks that were captured with two layers run like the whole model, or are captured whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.compiler.capture import capture
from optimum_neuron.compiler.passes.outline import outline
from optimum_neuron.compiler.passes.stretch import NotUniformError, stretch
from tests.programs import compile_module, run_program, spec

SIZE, SLOTS = 4, 5


class Layer(nn.Module):
    """Reads and writes two caches, and shares a table and a mask with the other layers."""

    def __init__(self, index):
        super().__init__()
        self.layer_idx = index
        self.up, self.down = nn.Linear(SIZE, 8), nn.Linear(8, SIZE, bias=False)

    def forward(self, x, table, slot, values, keys):
        values.index_copy_(0, slot, x)
        keys[slot] = x * table
        return torch.tanh(x + self.down(torch.tanh(self.up(x))) + (keys * values).sum(0))


class Model(nn.Module):
    def __init__(self, num_layers, layer=Layer):
        super().__init__()
        self.layers = nn.ModuleList(layer(index) for index in range(num_layers))
        self.register_buffer("table", torch.rand(SIZE), persistent=False)
        self.norm = nn.LayerNorm(SIZE)

    def forward(self, x, slot, states):
        x, table = x * 2, self.table + 1
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            x = layer(x, table, slot, values, keys)
        return self.norm(x)


INPUTS = {"x": spec(1, SIZE), "slot": spec(1, dtype="int64")}


def state_specs(num_layers):
    return {f"{kind}.{index}": spec(SLOTS, SIZE) for index in range(num_layers) for kind in ("keys", "values")}


def assert_runs_like(module, compiled, num_layers):
    """Three calls give the module's results and leave the module's state, to the last bit."""
    program = compiled.program
    assert set(program.states) == set(state_specs(num_layers))
    state = {name: torch.zeros(SLOTS, SIZE) for name in program.states}
    wanted_state = {name: torch.zeros(SLOTS, SIZE) for name in state_specs(num_layers)}
    for slot in (0, 3, 1):
        x, where = torch.randn(1, SIZE), torch.tensor([slot])
        found = run_program(program, module, [x, where], list(state.values()))["output"]
        with torch.no_grad():
            wanted = module(x, where, list(wanted_state.values()))
        assert torch.equal(found, wanted)
    assert all(torch.equal(state[name], wanted_state[name]) and state[name].any() for name in wanted_state)


@pytest.mark.parametrize("num_layers", [2, 3, 12])
def test_a_stretched_program_gives_the_results_of_the_whole_model(num_layers):
    model = Model(num_layers)
    compiled = compile_module(model, INPUTS, states=state_specs(num_layers))
    assert compiled.stacks["layers"].value == 2
    calls = [call for call in compiled.program.graphs["graph"].calls if call.module_path]
    assert [call.module_path for call in calls] == [f"layers.{index}" for index in range(num_layers)]
    assert len({call.subprogram for call in calls}) == 1
    assert {name for name in compiled.program.weights if name.endswith("up.weight")} == {
        f"layers.{index}.up.weight" for index in range(num_layers)
    }
    assert_runs_like(model, compiled, num_layers)


class UsesIndex(Layer):
    def forward(self, x, *rest):
        return super().forward(x * (1 + self.layer_idx), *rest)


class OwnBuffer(Layer):
    def __init__(self, index):
        super().__init__(index)
        self.register_buffer("own", torch.full((SIZE,), float(index)), persistent=False)

    def forward(self, x, *rest):
        return super().forward(x + self.own, *rest)


class TwoResults(Layer):
    def forward(self, x, *rest):
        return super().forward(x, *rest), x.sin()


class KeepsLastDetail(Model):
    """The second result of a layer is used in the last one only."""

    def __init__(self, num_layers):
        super().__init__(num_layers, TwoResults)

    def forward(self, x, slot, states):
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            x, detail = layer(x, self.table, slot, values, keys)
        return x + detail


class SkipsToTheEnd(Model):
    """The result of the first layer is used after the stack."""

    def forward(self, x, slot, states):
        results = []
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            x = layer(x, self.table, slot, values, keys)
            results.append(x)
        return x + results[0]


class WorksBetween(Model):
    """Something happens between the layers that is no part of them."""

    def forward(self, x, slot, states):
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            x = layer(x, self.table, slot, values, keys).tanh()
        return x


class SeesTheFirstInput(Model):
    """Every layer after the first also gets the input of the one before."""

    def forward(self, x, slot, states):
        before = x * 2
        for layer, keys, values in zip(self.layers, states[::2], states[1::2], strict=True):
            x, before = layer(x, before, slot, values, keys), x
        return x


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda n: Model(n, UsesIndex), "layers 0 and 1 have different graphs"),
        (lambda n: Model(n, OwnBuffer), "constant layers.2.own differs from layer to layer"),
        (KeepsLastDetail, "layers 0 and 1 have different graphs"),
        (SkipsToTheEnd, "the result of layer 0 is used after the stack"),
        (WorksBetween, "the layers are not two consecutive calls"),
        (SeesTheFirstInput, "do not follow the layer's index"),
    ],
    ids=["index", "buffer", "last", "first", "between", "two back"],
)
def test_what_does_not_repeat_is_captured_whole_and_still_right(make, reason):
    model = make(4)
    compiled = compile_module(model, INPUTS, states=state_specs(4))
    assert compiled.stacks["layers"].value == 4
    assert compiled.stacks["layers"].reason.startswith("layers: ") and reason in compiled.stacks["layers"].reason
    assert_runs_like(model, compiled, 4)


def test_one_module_called_as_every_layer():
    layer = Layer(0)
    model = Model(4, lambda index: layer)
    compiled = compile_module(model, INPUTS, states=state_specs(4))
    assert {name for name in compiled.program.weights if "up" in name} == {"layers.0.up.weight", "layers.0.up.bias"}
    assert_runs_like(model, compiled, 4)


def test_two_stacks_of_other_lengths():
    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = Model(5), Model(3)

        def forward(self, x, slot):
            def states(num_layers):
                return [torch.zeros(SLOTS, SIZE) for _ in range(2 * num_layers)]

            return self.right(self.left(x, slot, states(len(self.left.layers))), slot, states(len(self.right.layers)))

    model = Double()
    compiled = compile_module(model, INPUTS)
    x, slot = torch.randn(1, SIZE), torch.tensor([2])
    assert torch.equal(run_program(compiled.program, model, [x, slot])["output"], model(x, slot))


def test_a_program_without_the_two_layers_is_declined():
    model = Model(4)
    captured = capture(model, name="graph", inputs=INPUTS, states=state_specs(4), shorten=False)
    with pytest.raises(NotUniformError, match="not two consecutive calls"):
        stretch(outline(captured), "graph", captured.stacks[0])
