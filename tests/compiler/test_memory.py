"""HBM of a program, counted by hand."""

from __future__ import annotations

import torch
from torch import nn

from optimum_neuron.compiler.memory import MICROCODE_BYTES, MemoryNeed, memory_need
from tests.programs import Calls, compile_module, spec

KIB = spec(256)
"""A tensor of 1 KiB."""


def scratch(function, *inputs, outputs=("output",), **options):
    """KiB of live intermediate results of a function of tensors of 1 KiB."""
    program = compile_module(
        Calls(lambda *args: function(*args)), {f"in{i}": s for i, s in enumerate(inputs)}, **options
    )
    return memory_need(program.program).scratch / 1024


def test_weights_constants_and_states_are_sums():
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
    assert need.weights == (8 * 16 + 16) * 2 + 16 * 4
    assert need.kv_cache == 2 * 16 * 4
    assert need.code == MICROCODE_BYTES == 96 * 1024**2
    assert need.total == need.weights + need.kv_cache + need.scratch + need.code


def test_scratch_is_the_largest_moment_not_the_sum():
    assert scratch(lambda x: x.exp(), KIB) == 1
    assert scratch(lambda x: x.exp().sin().cos().tanh(), KIB) == 2, "an input and an output of each operator"
    assert scratch(lambda x: x.exp() + x.sin() + x.cos(), KIB) == 3


def test_a_view_costs_nothing_and_keeps_its_base():
    assert scratch(lambda x: x.exp().view(16, 16).t(), KIB) == 1

    def held_by_a_view(x):
        low = x.exp().chunk(2)[0]
        return x.sin().cos().sum() + low

    # exp stays for its half that is used at the end; beside it at most sin and cos.
    assert scratch(held_by_a_view, KIB) == 3


def test_a_cast_and_a_transposed_reshape_are_copies():
    assert scratch(lambda x: x.to(torch.bfloat16), KIB) == 0.5
    assert scratch(lambda x: x.to(torch.float32).view(-1), KIB) == 0, "a cast to its own dtype is the tensor itself"
    assert scratch(lambda x: x.view(16, 16).t().reshape(-1), KIB) == 1
    assert scratch(lambda x: x.view(16, 16).reshape(-1) + 0, KIB) == 1


def test_what_is_written_in_place_costs_nothing():
    def function(x, states):
        states[0].add_(x)
        states[0][:128].copy_(x[128:])
        return x + 1

    assert scratch(lambda x, states: function(x, states), KIB, states={"cache.0": KIB}) == 1


def test_an_operator_of_several_results_counts_all_of_them():
    assert scratch(lambda x: torch.max(x.view(16, 16), 0).values, KIB) == 16 * (4 + 8) / 1024


def test_the_table_has_every_category_with_its_share():
    need = MemoryNeed(weights=2 * 1024**3, kv_cache=1024**3, scratch=0, code=1024**3)
    lines = need.table(16 * 1024**3).splitlines()
    assert [line.split()[0] for line in lines] == ["weights", "kv_cache", "scratch", "code", "total", "available"]
    assert lines[0].split()[1:] == ["2.000", "GiB", "12.5%"] and lines[4].split()[1:] == ["4.000", "GiB", "25.0%"]
