"""One program for all cores of a group: what they compute alike is computed once."""

import sys

import torch
from torch import nn

from optimum_neuron.compiler import collectives
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.passes import unroll, verify
from optimum_neuron.compiler.passes.unroll import _Bodies
from optimum_neuron.runtime import Executor
from optimum_neuron.weights import Shard, Shards, even_split
from tests.programs import compile_module, operators, run_program, spec

NUM_CORES = 2


class Divided(nn.Module):
    """Rows of a matrix are divided; what is before and behind the product is the same on both cores."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        whole = collectives.ALL_GATHER(self.up(torch.tanh(x)), 1, NUM_CORES)
        return torch.exp(whole - whole.max(-1, keepdim=True).values)


def test_what_is_alike_is_computed_once():
    program = verify(compile_module(Divided(), {"x": spec(2, 4)}).program, after="outline")
    nodes = [node for one in program.subprograms.values() for node in one.body.graph.nodes]
    assert {node.meta["module_path"] for node in nodes if "linear" in str(node.target)} == {"up"}
    shards = Shards(NUM_CORES, {"up.weight": Shard(0, (even_split(6, NUM_CORES),))})
    host = verify(unroll(program, shards), after="unroll")
    (graph,) = host.graphs.values()
    targets = [
        str(node.target)
        for call in graph.calls
        for node in host.subprograms[call.subprogram].body.graph.nodes
        if node.op == "call_function"
    ]
    counts = {name: targets.count(f"aten.{name}.default") for name in ("tanh", "linear", "exp")}
    assert counts == {"tanh": 1, "linear": NUM_CORES, "exp": 1}
    assert len(graph.calls) == 2 + NUM_CORES, "what is behind the exchange is one call with it"
    assert graph.calls[-1].outputs == (graph.outputs["output"],)
    assert host.subprograms.keys() == {call.subprogram for call in graph.calls}
    weight, x = torch.randn(6, 4), torch.randn(2, 4)
    weights = {f"up.weight@{rank}": shards.of_weights["up.weight"].part([weight], rank) for rank in range(NUM_CORES)}
    functions = {name: aten_function(one.body) for name, one in host.subprograms.items()}
    executor = Executor(host, functions, weights)
    result = executor.run(graph.name, [x], executor.new_state())["output"]
    whole = torch.tanh(x) @ weight.T
    torch.testing.assert_close(result, torch.exp(whole - whole.max(-1, keepdim=True).values))


class Ranked(nn.Module):
    """Without a product that differs between cores, and with one behind the exchange that is the same on them."""

    def __init__(self):
        super().__init__()
        self.down = nn.Linear(4 * NUM_CORES, 4, bias=False)

    def forward(self, x):
        return self.down(collectives.ALL_GATHER(x * (collectives.RANK(NUM_CORES) + 1), 1, NUM_CORES))


def test_neither_calls_of_one_core_nor_products_are_joined():
    program = compile_module(Ranked(), {"x": spec(2, 4)}).program
    host = verify(unroll(program, Shards(NUM_CORES, {})), after="unroll")
    (graph,) = host.graphs.values()
    called = [
        {name.split(".")[1] for name in operators(host.subprograms[call.subprogram].body)} for call in graph.calls
    ]
    assert [("mul" in names, "linear" in names) for names in called] == [(True, False)] * NUM_CORES + [
        (False, False),
        (False, True),
    ]


class Writes(nn.Module):
    """Writes to a tensor that all cores have alike, behind an exchange."""

    def forward(self, x):
        alike = torch.exp(x)
        alike.add_(collectives.ALL_REDUCE(x * (collectives.RANK(NUM_CORES) + 1), NUM_CORES))
        return alike


def test_what_is_alike_is_written_once():
    program = compile_module(Writes(), {"x": spec(2, 4)}).program
    host = verify(unroll(program, Shards(NUM_CORES, {})), after="unroll")
    x = torch.randn(2, 4)
    torch.testing.assert_close(run_program(host, Writes(), [x])["output"], x.exp() + 3 * x)


class Own(nn.Module):
    """Its result differs between cores."""

    def forward(self, x):
        return x * (collectives.RANK(NUM_CORES) + 1)


def test_results_are_those_of_the_first_core():
    program = compile_module(Own(), {"x": spec(2, 4)}).program
    host = verify(unroll(program, Shards(NUM_CORES, {})), after="unroll")
    x = torch.randn(2, 4)
    assert torch.equal(run_program(host, Own(), [x])["output"], x)


def test_what_is_made_of_a_body_is_made_once(monkeypatch):
    program = compile_module(Divided(), {"x": spec(2, 4)}).program
    bodies, module, made = _Bodies(program), sys.modules[_Bodies.__module__], []
    for name in ("divide", "host_exchange", "joined_body", "zero_results"):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, function=function: made.append(name) or function(*a))
    before, exchange, behind = program.graphs["graph"].calls
    for _ in range(2):
        bodies.divided(before.subprogram, (1,))
        bodies.exchanged(exchange.subprogram, NUM_CORES)
        bodies.joined([behind], behind.outputs)
        bodies.zero_results(before.subprogram, (1,))
    assert made == ["divide", "host_exchange", "joined_body", "zero_results"]
