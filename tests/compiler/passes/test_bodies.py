"""Rewriting bodies and joining the programs of one model."""

from __future__ import annotations

import torch
from torch import fx, nn

from optimum_neuron.compiler import capture
from optimum_neuron.compiler.passes import merge, outline, rewrite_bodies, verify
from tests.programs import Calls, compile_module, operators, run_program, spec


def relu_for_tanh(body: fx.GraphModule) -> fx.GraphModule:
    graph, copies = fx.Graph(), {}
    for node in body.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
        if node.target is torch.ops.aten.tanh.default:
            copies[node].target = torch.ops.aten.relu.default
    return fx.GraphModule({}, graph)


def test_calls_follow_new_names_and_untouched_bodies_keep_theirs():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    program = compile_module(model, {"x": spec(2, 4)}).program
    second = verify(rewrite_bodies(program, relu_for_tanh), after="rewrite")
    assert second.subprograms.keys() != program.subprograms.keys()
    x = torch.randn(2, 4)
    assert torch.equal(run_program(second, model, [x])["output"], model[0](x).relu())
    assert rewrite_bodies(program, lambda body: body).subprograms.keys() == program.subprograms.keys()


def test_equal_bodies_of_two_graphs_are_stored_once():
    def captured(name, function):
        return outline(capture(Calls(function), name=name, inputs={"x": spec(2)}))

    joined = merge([captured("a", torch.sin), captured("b", torch.sin), captured("c", torch.cos)])
    assert list(joined.graphs) == ["a", "b", "c"] and len(joined.subprograms) == 2
    names = [graph.calls[0].subprogram for graph in verify(joined, after="merge").graphs.values()]
    assert names[0] == names[1] != names[2]
    assert operators(joined.subprograms[names[2]].body) == ["aten.cos.default"]


def test_constants_of_one_name_are_merged_only_if_equal():
    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.register_buffer("factor", torch.full((2,), factor), persistent=False)

        def forward(self, x):
            return x * self.factor

    programs = [
        outline(capture(Scaled(f), name=n, inputs={"x": spec(2)})) for n, f in [("a", 2.0), ("b", 3.0), ("c", 2.0)]
    ]
    joined = verify(merge(programs), after="merge")
    assert list(joined.constants) == ["factor", "factor@b"]
    results = [run_program(joined, Scaled(0.0), [torch.ones(2)], graph=name)["output"][0].item() for name in "abc"]
    assert results == [2.0, 3.0, 2.0]
