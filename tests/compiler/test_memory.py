"""HBM of a program, counted by hand."""

import functools

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import MICROCODE_BYTES, MemoryNeed, capture, compile_graphs, memory_need
from optimum_neuron.compiler.passes import outline
from optimum_neuron.hardware import TARGETS
from tests.programs import Calls, capture_entry, compile_module, spec

KIB = spec(256)
"""A tensor of 1 KiB."""


def scratch(function, *inputs, outputs=("output",), **options):
    """KiB of live intermediate results of a function of tensors of 1 KiB."""
    program = compile_module(
        Calls(lambda *args: function(*args)), {f"in{i}": s for i, s in enumerate(inputs)}, **options
    )
    return memory_need(program.program).scratch / 1024


def test_weights_constants_and_states_are_summed():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 16, dtype=torch.bfloat16)
            self.unused = nn.Linear(64, 64)
            self.register_buffer("table", torch.ones(16), persistent=False)

        def forward(self, x, states):
            states[0].add_(1)
            return self.linear(x) * self.table + states[0]

    need = memory_need(
        compile_module(Model(), {"x": spec(2, 8, dtype="bfloat16")}, states={"cache.0": spec(2, 16)}).program
    )
    assert need.weights == (8 * 16 + 16) * 2 + 16 * 4 and need.kv_cache == 2 * 16 * 4
    assert need.code == MICROCODE_BYTES == 96 * 1024**2
    assert need.total == need.weights + need.kv_cache + need.scratch + need.code


@pytest.mark.parametrize(
    ("target", "auto_cast", "size"),
    [
        # Neuron docs, Mixed precision (neuron-cc): by default it casts "weights and operations to BF16".
        ("inf1", "all", 2),
        ("inf1", "none", 4),
        ("inf2", "all", 4),
    ],
)
def test_neuron_cc_writes_the_weights_that_it_rounds_in_16_bits(target, auto_cast, size):
    program = compile_module(nn.Linear(8, 16), {"input": spec(2, 8)}, auto_cast=auto_cast).program
    bias = 16 * 4  # is added to sums of float32
    assert memory_need(program, TARGETS[target]).weights == 8 * 16 * size + bias


def test_scratch_is_peak_and_not_sum():
    assert scratch(lambda x: x.exp(), KIB) == 1
    assert scratch(lambda x: x.exp().sin().cos().tanh(), KIB) == 2, "an input and an output of each operator"
    assert scratch(lambda x: x.exp() + x.sin() + x.cos(), KIB) == 3


def test_view_costs_nothing_and_keeps_its_base():
    assert scratch(lambda x: x.exp().view(16, 16)[:8], KIB) == 1
    assert scratch(lambda x: x.exp().view(16, 16).t(), KIB) == 2, "a result with strides is laid out anew"

    def held_by_a_view(x):
        low = x.exp().chunk(2)[0]
        return x.sin().cos().sum() + low

    # exp stays for its half that is used at the end; with it at most sin and cos.
    assert scratch(held_by_a_view, KIB) == 3


def test_weight_is_cast_as_it_is_loaded():
    assert scratch(lambda x: x.to(torch.bfloat16).sum(0, keepdim=True), KIB) == 2 / 1024


def test_cast_and_transposed_reshape_are_copies():
    assert scratch(lambda x: x.to(torch.bfloat16), KIB) == 0.5
    assert scratch(lambda x: x.to(torch.float32).view(-1), KIB) == 0, "a cast to its own dtype is the tensor itself"
    assert scratch(lambda x: x.view(16, 16).t().reshape(-1), KIB) == 1
    assert scratch(lambda x: x.view(16, 16).reshape(-1) + 0, KIB) == 1


def test_in_place_write_costs_nothing():
    def function(x, states):
        states[0].add_(x)
        states[0][:128].copy_(x[128:])
        return x + 1

    assert scratch(lambda x, states: function(x, states), KIB, states={"cache.0": KIB}) == 1


def test_operator_with_several_results_counts_all():
    assert scratch(lambda x: torch.max(x.view(16, 16), 0).values, KIB) == 16 * (4 + 8) / 1024


class Block(nn.Module):
    """Two results of 1 KiB while it runs, one afterwards."""

    def forward(self, x, *states):
        return x.sin().cos()


class Chain(nn.Module):
    """Blocks between a head and a tail; subclasses define the values kept meanwhile."""

    def __init__(self, layer=Block):
        super().__init__()
        self.layers = nn.ModuleList(layer() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.exp()


class Residual(Chain):
    def forward(self, x):
        kept = x.exp()
        for layer in self.layers:
            x = layer(x)
        return x + kept


class Halves(Chain):
    """Two views of one result are kept, and used at different times."""

    def forward(self, x):
        left, right = x.exp().chunk(2)
        x = self.layers[2](self.layers[1](self.layers[0](x)) + left.sum())
        return x + right.sum()


class Pairs(Chain):
    """Each layer's result is a graph output too."""

    def forward(self, x):
        results = []
        for layer in self.layers:
            x = layer(x)
            results.append(x)
        return tuple(results)


class InPlace(nn.Module):
    def forward(self, x, state):
        return state.add_(x)


class Counts(Chain):
    """The layers return their state, which is no scratch."""

    def __init__(self):
        super().__init__(InPlace)

    def forward(self, x, states):
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state)
        return x.exp()


STATES = {f"sum.{index}": KIB for index in range(3)}
CHAINS = {
    # head, each layer: its input and sin, cos; tail: the last layer's result and exp.
    "chain": (Chain(), {}, {}, 3),
    # the same with exp, which the tail reads.
    "residual": (Residual(), {}, {}, 4),
    # the same: both halves are one result of 1 KiB. The last layer runs while it and the result of the sum are live.
    "views": (Halves(), {}, {}, 4),
    # the last layer: two results before it, of which it reads one, and its own two.
    "outputs": (Pairs(), {}, {"outputs": ("a", "b", "c")}, 4),
    "state": (Counts(), STATES, {}, 1),
}


@pytest.mark.parametrize(("model", "states", "options", "expected"), CHAINS.values(), ids=CHAINS)
def test_results_live_between_bodies_are_counted(model, states, options, expected):
    captured = capture(model, name="graph", inputs={"x": KIB}, states=states, **options)
    program = outline(captured)
    assert len(program.graphs["graph"].calls) > 2 and memory_need(program).scratch / 1024 == expected


def test_largest_graph_counts():
    captures = [
        functools.partial(capture_entry, model, name=name, inputs={"x": KIB})
        for name, model in (("chain", Chain()), ("residual", Residual()))
    ]
    assert memory_need(compile_graphs(captures, target=TARGETS["inf2"]).program).scratch == 4 * 1024


def test_table_has_every_category_with_its_share():
    need = MemoryNeed(weights=2 * 1024**3, kv_cache=1024**3, scratch=0, code=1024**3)
    lines = need.table(16 * 1024**3).splitlines()
    assert [line.split()[0] for line in lines] == ["weights", "kv_cache", "scratch", "code", "total", "available"]
    assert lines[0].split()[1:] == ["2.000", "GiB", "12.5%"] and lines[4].split()[1:] == ["4.000", "GiB", "25.0%"]
