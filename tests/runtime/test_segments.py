"""Compiled steps of several cores, which run side by side on the threads of the host (one real compile)."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import collectives
from optimum_neuron.compiler.lower import lower, probe_compiler
from optimum_neuron.compiler.passes import unroll
from optimum_neuron.errors import LoweringError
from optimum_neuron.runtime import Executor
from optimum_neuron.weights import Shard, Shards, even_split
from tests.programs import compile_module, spec
from tests.raising import raises

pytestmark = [
    pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine"),
    pytest.mark.full(days=2, by="file"),
]

RANKS, LAYERS, SIZE, ROWS = range(2), range(2), 64, 8
PART = SIZE // len(RANKS)


class Layers(nn.Module):
    """Equal layers that are divided among cores; each needs the one before, and has a state."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(SIZE))
        self.ups = nn.ModuleList(nn.Linear(SIZE, PART, bias=False) for _ in LAYERS)
        self.downs = nn.ModuleList(nn.Linear(PART, SIZE, bias=False) for _ in LAYERS)

    def forward(self, token, states):
        x = token * self.scale
        for up, down, total in zip(self.ups, self.downs, states, strict=True):
            total.add_(up(x))
            x = torch.tanh(x + collectives.ALL_REDUCE(down(total), len(RANKS)))
        return x


DIVIDED = {
    f"{name}.{layer}.weight": Shard(dim, (even_split(SIZE, len(RANKS)),))
    for layer in LAYERS
    for name, dim in (("ups", 0), ("downs", 1))
}


@pytest.fixture(scope="module")
def program():
    states = {f"total.{layer}": spec(ROWS, PART) for layer in LAYERS}
    program = compile_module(Layers(), {"token": spec(ROWS, 1)}, states=states).program
    return unroll(program, Shards(len(RANKS), DIVIDED))


@pytest.fixture(scope="module")
def functions(program, tmp_path_factory):
    before = torch.get_num_threads()
    torch.set_num_threads(len(RANKS))
    yield lower(program, optlevel="2", root=tmp_path_factory.mktemp("store")).functions
    torch.set_num_threads(before)


@pytest.fixture
def weights():
    torch.manual_seed(0)
    whole = {name: torch.randn(SIZE, SIZE) / SIZE for name in DIVIDED} | {"scale": torch.randn(SIZE)}
    parts = {f"{name}@{rank}": one.part([whole[name]], rank) for name, one in DIVIDED.items() for rank in RANKS}
    return whole, parts | {"scale": whole["scale"]}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_cores_run_side_by_side_and_layers_in_order(program, functions, weights, mode):
    whole, parts = weights
    (graph,) = program.graphs.values()
    executor = Executor(program, functions, parts)
    (plan,) = executor._plans.values()
    layer = [2, 1, 2, 1, 2, 1, 1]  # two products and a state of each core, then the sum
    assert [step.num_abreast for step in plan.steps] == [1, *layer, *layer] and len(plan.parts) == 1
    with mode():
        state, token = executor.new_state(), torch.randn(ROWS, 1)
        totals = [torch.zeros(ROWS, SIZE) for _ in LAYERS]
        for _ in range(20):
            x = token * whole["scale"]
            for layer, total in enumerate(totals):
                total += x @ whole[f"ups.{layer}.weight"].T
                x = torch.tanh(x + total @ whole[f"downs.{layer}.weight"].T)
            actual = executor.run(graph.name, [token], state)["output"]
            torch.testing.assert_close(actual, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", RANKS)
def test_error_of_a_core_is_reported(program, functions, weights, rank):
    _, parts = weights
    parts[f"downs.1.weight@{rank}"] = torch.randn(SIZE, PART + 1)
    executor = Executor(program, functions, parts)
    with raises(LoweringError) as error:
        executor.run(next(iter(program.graphs)), [torch.randn(ROWS, 1)], executor.new_state())
    assert error.value.details["function"].startswith("sub_")
    assert re.search("linear|few_rows", error.value.details["error"])
