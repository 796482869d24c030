"""Programs that cores share: cut where they exchange tensors, and computed by one host program."""

import gc
import operator

import pytest
import torch
from torch import nn

from optimum_neuron.compiler import capture, collectives, group_size_of
from optimum_neuron.compiler.kernels import is_kernel
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.passes import cut_at_exchanges, outline, unroll, verify
from optimum_neuron.compiler.passes.exchanges import host_exchange
from optimum_neuron.nki import jit, language as nl
from optimum_neuron.runtime import Executor
from optimum_neuron.weights import Shard, Shards, even_split
from tests.compiler.test_sources import num_sources
from tests.programs import compile_module, run_program, spec

NUM_CORES, SIZE, WIDTH = 3, 4, 6


class Shared(nn.Module):
    """A core's part of a feed-forward, with a state of its own and a residual that all cores compute alike."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(SIZE)
        self.up = nn.Linear(SIZE, WIDTH // NUM_CORES)
        self.down = nn.Linear(WIDTH // NUM_CORES, SIZE, bias=False)

    def forward(self, x, states):
        wide = torch.relu(self.up(self.norm(x)))
        states[0].add_(wide)
        summed = x + collectives.ALL_REDUCE(self.down(states[0]), NUM_CORES)
        own = summed * (collectives.RANK(NUM_CORES) + 1)
        return collectives.ALL_GATHER(own, 0, NUM_CORES)


STATES = {"total.0": spec(1, WIDTH // NUM_CORES)}
ROWS, COLUMNS = (Shard(dim, (even_split(WIDTH, NUM_CORES),)) for dim in (0, 1))
SHARDS = Shards(NUM_CORES, {"up.weight": ROWS, "up.bias": ROWS, "down.weight": COLUMNS})


@pytest.fixture(scope="module")
def program():
    return compile_module(Shared(), {"x": spec(1, SIZE)}, states=STATES).program


def test_every_exchange_is_a_call_of_its_own(program):
    (graph,) = program.graphs.values()
    exchanges = [collectives.exchange_of(program.subprograms[call.subprogram]) for call in graph.calls]
    targets = [None if node is None else node.target for node in exchanges]
    assert targets == [None, collectives.ALL_REDUCE, None, collectives.ALL_GATHER]
    assert any("rank:" in call.inputs for call in graph.calls)
    assert program.subprograms.keys() == {call.subprogram for call in graph.calls}
    assert group_size_of(program) == NUM_CORES


def test_bodies_without_exchanges_stay():
    program = compile_module(nn.Linear(SIZE, SIZE), {"input": spec(1, SIZE)}).program
    assert cut_at_exchanges(program) is program


def test_one_core_needs_no_other_program(program):
    assert unroll(program, Shards()) is program


def test_the_host_program_computes_every_core(program):
    torch.manual_seed(0)
    host = verify(unroll(program, SHARDS), after="unroll")
    norm, up, down = nn.LayerNorm(SIZE), nn.Linear(SIZE, WIDTH), nn.Linear(WIDTH, SIZE, bias=False)
    part = WIDTH // NUM_CORES
    weights = {"norm.weight": norm.weight, "norm.bias": norm.bias}
    for rank in range(NUM_CORES):
        own = slice(rank * part, (rank + 1) * part)
        weights |= {f"up.weight@{rank}": up.weight[own], f"up.bias@{rank}": up.bias[own]}
        weights[f"down.weight@{rank}"] = down.weight[:, own].contiguous()
    assert host.weights.keys() == weights.keys()
    functions = {name: aten_function(one.body) for name, one in host.subprograms.items()}
    executor = Executor(host, functions, {name: weight.detach() for name, weight in weights.items()})
    state, x, total = executor.new_state(), torch.randn(1, SIZE), torch.zeros(1, WIDTH)
    assert len(state) == NUM_CORES
    for _ in range(2):
        with torch.no_grad():
            total += torch.relu(up(norm(x)))
            summed = x + down(total)
            joined = torch.cat([summed * (rank + 1) for rank in range(NUM_CORES)])
            torch.testing.assert_close(executor.run(next(iter(host.graphs)), [x], state)["output"], joined)


class Behind(nn.Module):
    """Layers without an exchange, and one behind them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return collectives.ALL_REDUCE(x, NUM_CORES)


def test_bodies_without_an_exchange_stay_whole():
    program = compile_module(Behind(), {"x": spec(1, SIZE)}).program
    (graph,) = program.graphs.values()
    exchanges = [collectives.exchange_of(program.subprograms[call.subprogram]) for call in graph.calls]
    assert [node is None for node in exchanges] == [True, True, False]
    assert graph.calls[0].subprogram == graph.calls[1].subprogram


class Scattered(nn.Module):
    def forward(self, x):
        part = collectives.REDUCE_SCATTER(x * (collectives.RANK(2) + 1), 1, 2)
        return collectives.ALL_GATHER(part * 10, 1, 2)


def test_a_sum_is_divided_among_the_cores():
    host = unroll(compile_module(Scattered(), {"x": spec(1, SIZE)}).program, Shards(2))
    functions = {name: aten_function(one.body) for name, one in host.subprograms.items()}
    x = torch.randn(1, SIZE)
    result = Executor(host, functions, {}).run("graph", [x])["output"]
    torch.testing.assert_close(result, 30 * x)


class Summed(nn.Module):
    def forward(self, x):
        return collectives.ALL_REDUCE(x * 1, 3)


def test_sums_of_16_bit_numbers_are_rounded_once():
    program = compile_module(Summed(), {"x": spec(1, 1, dtype="bfloat16")}).program
    (subprogram,) = [one for one in program.subprograms.values() if collectives.exchange_of(one) is not None]
    gc.collect()
    before = num_sources()
    host_exchange(subprogram, 3)
    gc.collect()
    assert num_sources() == before, "what is traced leaves no source"
    body = host_exchange(subprogram, 3).body
    parts = [torch.tensor([[value]], dtype=torch.bfloat16) for value in (256.0, 1.0, 1.0)]
    assert body(*parts)[0].item() == 258.0
    assert host_exchange(subprogram, 1).body(parts[0])[0].item() == 256.0, "the others have zeros"


@jit
def both_signs(x):
    tile = nl.load(x)
    same, negative = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nl.store(same, tile)
    nl.store(negative, nl.multiply(tile, -1.0))
    return same, negative


class Signs(nn.Module):
    def forward(self, x):
        same, negative = both_signs(x.exp())
        return same - negative


def test_a_kernel_is_a_call_with_all_its_results():
    program = cut_at_exchanges(outline(capture(Signs(), name="graph", inputs={"x": spec(8, SIZE)})))
    bodies = [program.subprograms[call.subprogram].body for call in program.graphs["graph"].calls]
    nodes = [[node for node in body.graph.nodes if node.op == "call_function"] for body in bodies]
    (before,), (kernel, *results), (after,) = nodes
    assert (str(before.target), is_kernel(kernel), str(after.target)) == ("aten.exp.default", True, "aten.sub.Tensor")
    assert [(node.target, node.args) for node in results] == [(operator.getitem, (kernel, index)) for index in (0, 1)]
    x = torch.randn(8, SIZE)
    torch.testing.assert_close(run_program(program, Signs(), [x])["output"], 2 * x.exp())
