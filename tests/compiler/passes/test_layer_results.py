"""Results of layers beside those of a graph."""

from __future__ import annotations

import pytest

from optimum_neuron.compiler import Call, Graph, Program
from optimum_neuron.compiler.passes.outline import return_layers


def graph(name):
    calls = tuple(
        Call(
            subprogram="body", inputs=(f"tmp:{number}",), outputs=(f"tmp:{number + 1}",), module_path=f"layers.{number}"
        )
        for number in range(3)
    )
    return Graph(name=name, inputs={}, outputs={"logits": "tmp:3"}, calls=calls)


def program(*graphs):
    return Program(graphs={one.name: one for one in graphs}, subprograms={}, weights={}, states={}, constants={})


def test_named_layers_are_returned_by_one_graph():
    before = program(graph("decode"), graph("prefill"))
    after = return_layers(before, "decode", {"hidden_states.1": "layers.0", "hidden_states.3": "layers.2"})
    outputs = {"logits": "tmp:3", "hidden_states.1": "tmp:1", "hidden_states.3": "tmp:3"}
    assert after.graphs["decode"].outputs == outputs and after.graphs["decode"].calls == before.graphs["decode"].calls
    assert after.graphs["prefill"] == before.graphs["prefill"] and list(after.graphs) == ["decode", "prefill"]
    assert before.graphs["decode"].outputs == {"logits": "tmp:3"}


def test_a_layer_that_is_not_there_is_a_defect():
    with pytest.raises(ValueError):
        return_layers(program(graph("decode")), "decode", {"hidden_states.9": "layers.8"})
