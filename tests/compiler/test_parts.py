"""Entry points that are parts of one capture."""

from __future__ import annotations

import torch
from torch import nn

from optimum_neuron.compiler import capture, part_of
from optimum_neuron.compiler.passes import outline
from optimum_neuron.compiler.serialize import body_to_dict
from tests.programs import run_program, spec


class Both(nn.Module):
    """Returns the results of one row and of all, as a decoder does for prompts."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x_BD, index_B, states):
        hidden_BD = self.first(x_BD)
        states[0].copy_(hidden_BD)
        one_BD = hidden_BD.gather(0, index_B[:, None].expand(-1, 4))
        return self.project(one_BD), self.project(hidden_BD)

    def project(self, x_BD):
        return nn.functional.linear(x_BD.float(), self.head.weight.float(), self.head.bias.float())


class All(Both):
    def forward(self, x_BD, states):
        hidden_BD = self.first(x_BD)
        states[0].copy_(hidden_BD)
        return self.project(hidden_BD)


X, INDEX, STATES = spec(5, 4), spec(1, dtype="int64"), {"hidden.0": spec(5, 4)}


def both_of(module):
    inputs = {"x": X, "index": INDEX}
    return capture(module, name="both", inputs=inputs, states=STATES, outputs=("one.y", "all.y"))


def test_parts_compute_their_results_and_write_states():
    module = Both()
    both = both_of(module)
    num_nodes = len(both.exported.graph.nodes)
    one = part_of(both, name="one", role="prefill", outputs={"y": "one.y"})
    every = part_of(both, name="all", role="score", outputs={"y": "all.y"}, without=("index",))
    assert len(both.exported.graph.nodes) == num_nodes and (one.name, every.role) == ("one", "score")
    assert (one.inputs, every.inputs) == (("x", "index"), ("x",)) and one.outputs == every.outputs == ("y",)
    x, index = torch.rand(5, 4), torch.tensor([3])
    with torch.no_grad():
        expected_one, expected_all = module(x, index, [torch.zeros(5, 4)])
    for part, inputs, expected in ((one, [x, index], expected_one), (every, [x], expected_all)):
        state = torch.zeros(5, 4)
        actual = run_program(outline(part), module, inputs, [state], part.name)
        torch.testing.assert_close(actual["y"], expected)
        torch.testing.assert_close(state, module.first(x).detach())


def test_graph_of_a_part_is_that_of_the_part_alone():
    """The first projection casts weights to their own dtype, and the second one reads the casts."""
    part = part_of(both_of(Both()), name="g", role="score", outputs={"y": "all.y"}, without=("index",))
    alone = capture(All(), name="g", inputs={"x": X}, states=STATES, outputs=("y",))
    programs = [outline(captured) for captured in (part, alone)]
    bodies = [[body_to_dict(one.body) for one in program.subprograms.values()] for program in programs]
    operators = [[(node["op"], node["args"]) for body in found for node in body["nodes"]] for found in bodies]
    assert operators[0] == operators[1] and "aten.to.dtype" in dict(operators[0])
    calls = [[(call.inputs, call.outputs) for call in program.graphs["g"].calls] for program in programs]
    assert calls[0] == calls[1]
