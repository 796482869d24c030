"""Cores that have zeros alone: what they need not compute, without a change of the sum."""

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.compiler import Call, Graph, Program, collectives
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.passes import unroll, verify
from optimum_neuron.compiler.passes.idle import drop_unread, zero_results
from optimum_neuron.runtime import Executor
from optimum_neuron.weights import Shard, Shards, unit_split
from tests.programs import compile_module, spec, subprogram_of

X, WEIGHT, BIAS = spec(2, 4), spec(4, 4), spec(4)


def test_products_with_zeros_are_zeros():
    def function(x, weight, bias):
        product = F.linear(x.exp(), weight)
        views = product.view(-1).to(torch.float64), product.t(), x.t()
        return [product, *views, F.linear(x, weight, bias), product * x, product + x, x.to(torch.float64)]

    subprogram = subprogram_of(function, X, WEIGHT, BIAS, num_outputs=8)
    inputs = [node for node in subprogram.body.graph.nodes if node.op == "placeholder"]
    linear = next(node for node in subprogram.body.graph.nodes if len(node.all_input_nodes) == 3)
    weight, bias = (inputs.index(node) for node in linear.args[1:])
    assert zero_results(subprogram, [weight]) == {0, 1, 2, 5}
    assert zero_results(subprogram, [weight, bias]) == {0, 1, 2, 4, 5}
    assert not zero_results(subprogram, [bias])


def test_zeros_that_are_written_are_none():
    def function(x, weight):
        product = F.linear(x, weight)
        product.add_(1)
        return product

    assert not zero_results(subprogram_of(function, X, WEIGHT), [0, 1])

    def written_through_a_view(x, weight):
        product = F.linear(x, weight)
        product.view(-1).add_(1)
        return product

    assert not zero_results(subprogram_of(written_through_a_view, X, WEIGHT), [0, 1])


NUM_CORES, WIDTH = 4, 2


class Heads(nn.Module):
    """Three units on four cores, with a state that only they read, and one that a later layer reads on every core."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, WIDTH, bias=False)
        self.down = nn.Linear(WIDTH, 4, bias=False)

    def forward(self, x, states):
        wide = self.up(x)
        states[0].add_(wide)
        summed = collectives.ALL_REDUCE(self.down(states[0] * 2), NUM_CORES)
        states[1].add_(summed)
        return collectives.ALL_GATHER(states[1] * (collectives.RANK(NUM_CORES) + 1), 0, NUM_CORES)


def test_a_core_with_zeros_alone_computes_nothing():
    states = {"private.0": spec(1, WIDTH), "public.0": spec(1, 4)}
    program = compile_module(Heads(), {"x": spec(1, 4)}, states=states).program
    units = unit_split(3, WIDTH, [[0], [1], [2], [-1]])
    shards = Shards(NUM_CORES, {"up.weight": Shard(0, (units,)), "down.weight": Shard(1, (units,))})
    host = verify(unroll(program, shards), after="unroll")
    assert "private.0@2" in host.states and "private.0@3" not in host.states and "public.0@3" in host.states
    (graph,) = host.graphs.values()
    assert not any("down.weight@3" in value for call in graph.calls for value in call.inputs)
    up, down = torch.randn(6, 4), torch.randn(4, 6)
    weights = {f"up.weight@{rank}": shards.of_weights["up.weight"].part([up], rank) for rank in range(NUM_CORES)}
    weights |= {f"down.weight@{rank}": shards.of_weights["down.weight"].part([down], rank) for rank in range(NUM_CORES)}
    functions = {name: aten_function(one.body) for name, one in host.subprograms.items()}
    executor, x = Executor(host, functions, weights), torch.randn(1, 4)
    result = executor.run(graph.name, [x], executor.new_state())["output"]
    summed = 2 * (x @ up.T) @ down.T
    torch.testing.assert_close(result, torch.cat([summed * (rank + 1) for rank in range(NUM_CORES)]))


class Gathered(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, WIDTH, bias=False)

    def forward(self, x):
        return collectives.ALL_GATHER(self.up(x), 1, NUM_CORES)


def test_zeros_are_a_part_of_what_is_gathered():
    program = compile_module(Gathered(), {"x": spec(1, 4)}).program
    shard = Shard(0, (unit_split(3, WIDTH, [[0], [1], [2], [-1]]),))
    host = unroll(program, Shards(NUM_CORES, {"up.weight": shard}))
    up, x = torch.randn(6, 4), torch.randn(1, 4)
    weights = {f"up.weight@{rank}": shard.part([up], rank) for rank in range(NUM_CORES)}
    functions = {name: aten_function(one.body) for name, one in host.subprograms.items()}
    result = Executor(host, functions, weights).run("graph", [x])["output"]
    torch.testing.assert_close(result, torch.cat([x @ up.T, torch.zeros(1, WIDTH)], 1))


def test_states_that_another_graph_reads_are_written():
    """A prompt fills two states; only one of them is read, by the steps after it, through a third one.

    A value of the prompt has the name of one that the steps read, and nothing reads it.
    """
    names = ("cache.0", "private.0", "between.0")
    fill, move, read = ("fill", (0,)), ("move", (0,)), ("read", ())
    subprograms = {name: SimpleNamespace(mutated=mutated) for name, mutated in (fill, move, read)}

    def call(name, *inputs, outputs=()):
        return Call(subprogram=name, inputs=inputs, outputs=outputs, module_path="")

    prompt = [call("fill", f"state:{name}", "input:x") for name in names[:2]]
    prompt.append(call("read", "input:x", outputs=("tmp:0",)))
    steps = [call("move", "state:between.0", "state:cache.0"), call("read", "state:between.0", outputs=("tmp:0",))]
    graphs = {
        name: Graph(name=name, inputs={}, outputs=outputs, calls=tuple(calls))
        for name, outputs, calls in (("prompt", {"y": "input:x"}, prompt), ("step", {"y": "tmp:0"}, steps))
    }
    program = Program(graphs=graphs, subprograms=subprograms, weights={}, states=dict.fromkeys(names, X), constants={})
    after = drop_unread(program)
    assert sorted(after.states) == ["between.0", "cache.0"]
    assert after.graphs["prompt"].calls == (prompt[0],) and after.graphs["step"].calls == tuple(steps)
