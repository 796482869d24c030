"""Parts of a body: what is kept, and who reads it from whom."""

import torch
from torch.nn import functional as F

from optimum_neuron.compiler import Call
from optimum_neuron.compiler.passes.pieces import join, joined_body, pieces_of, wiring
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


def test_joined_calls_are_one_with_what_others_read():
    both = subprogram_of(lambda x: (x.exp(), x.sin()), spec(2), num_outputs=2)
    less = subprogram_of(lambda x, y: (x - y, x * y), spec(2), spec(2), num_outputs=2)
    bodies = {"both": both, "less": less}

    def calls(first, second, *values):
        return [
            Call(subprogram=first, inputs=values[:1], outputs=values[1:3], module_path="first"),
            Call(subprogram=second, inputs=(values[1], values[3]), outputs=values[4:], module_path="second"),
        ]

    chain = calls("both", "less", "input:x", "tmp:0", "tmp:1", "input:y", "tmp:2", "tmp:3")
    call = join(chain, "joined", {"tmp:1", "tmp:3"})
    assert (call.inputs, call.outputs) == (("input:x", "input:y"), ("tmp:1", "tmp:3"))
    assert (call.subprogram, call.module_path) == ("joined", "first")
    assert join(chain, "joined", {"tmp:2"}).module_path == "second"
    x, y = torch.randn(2, 2)
    joined = joined_body(chain, bodies, {"tmp:1", "tmp:3"})
    assert joined.inputs == (spec(2), spec(2)) and joined.outputs == (spec(2), spec(2))
    assert all(map(torch.equal, joined.body(x, y), (x.sin(), x.exp() * y)))
    # Other names make the same body; other calls, other wires, and other readers do not.
    key = wiring(chain, {"tmp:1", "tmp:3"})
    assert wiring(calls("both", "less", *"abcdef"), {"c", "f"}) == key
    assert wiring(calls("both", "more", *"abcdef"), {"c", "f"}) != key
    assert wiring(calls("both", "less", *"abcaef"), {"c", "f"}) != key
    assert wiring(calls("both", "less", *"abcdef"), {"b", "f"}) != key
