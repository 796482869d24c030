"""Parts of a body: what is kept, and who reads it from whom."""

import torch
from torch.nn import functional as F

from optimum_neuron.compiler.passes.pieces import pieces_of
from tests.programs import operators, spec, subprogram_of


def function(x, state, weight):
    state.add_(x)
    y = torch.tanh(x)
    return F.linear(y, weight) + y


def test_groups_that_write_or_are_read_are_kept():
    body = subprogram_of(function, spec(2, 4), spec(2, 4), spec(4, 4)).body
    nodes = {str(node.target).split(".")[1]: node for node in body.graph.nodes if node.op == "call_function"}
    with body.graph.inserting_before(nodes["tanh"]):
        unread = body.graph.call_function(torch.ops.aten.exp.default, (nodes["tanh"].args[0],))
    unread.meta["val"] = nodes["tanh"].meta["val"]
    groups = [[nodes["add_"]], [unread], [nodes["tanh"]], [nodes["linear"], nodes["add"]]]
    pieces = pieces_of(body, groups)
    names = [[name.split(".")[1] for name in operators(piece.subprogram.body)] for piece in pieces]
    assert names == [["add_"], ["tanh"], ["linear", "add"]]
    assert [piece.results for piece in pieces] == [(), (nodes["tanh"],), (nodes["add"],)]
    # Nothing reads the first group where the second one computes its node too.
    (both,) = pieces_of(body, [[nodes["tanh"]], [nodes["tanh"], nodes["linear"], nodes["add"]]])
    assert both.results == (nodes["add"],)
    # Others read a node of two groups from the first one.
    *_, second, _ = pieces_of(body, [[nodes["tanh"]], [nodes["tanh"], nodes["linear"]], [nodes["add"]]])
    assert second.results == (nodes["linear"],)
