"""The list of NeuronCore-v1: what it takes, under which condition, and what runs on the CPU."""

from __future__ import annotations

import dataclasses
import math
import operator

import pytest
import torch
from torch import nn

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler.rules import OpCall, check_graph
from optimum_neuron.compiler.rules.neuroncore_v1 import LIMITED, SUPPORTED, _condition, is_listed
from optimum_neuron.hardware import TARGETS


def refused(function, *inputs: torch.Tensor) -> list[str]:
    class Model(nn.Module):
        def forward(self, *arguments: torch.Tensor) -> torch.Tensor:
            return function(*arguments)

    exported = torch.export.export(Model(), inputs, strict=False)
    report = check_graph(exported, TARGETS["inf1"])
    assert not check_graph(exported, TARGETS["inf2"]).refused or report.refused
    return [ruling.op for ruling in report.refused]


def test_published_list_has_165_operators_of_aten():
    # Neuron docs, torch-neuron supported operators, without embedding and three names of the compiler's own.
    assert len({*SUPPORTED, *LIMITED}) == 165
    assert "aten::embedding" not in SUPPORTED


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: torch.relu(x) @ x.T, [torch.rand(2, 3)], []),
        (lambda x: nn.functional.scaled_dot_product_attention(x, x, x), [torch.rand(1, 2, 4, 8)], []),
        (lambda x: nn.functional.embedding(x.long(), torch.ones(9, 4)), [torch.ones(2)], ["aten.embedding.default"]),
        (lambda x: torch.cumsum(x, 0), [torch.rand(3)], ["aten.cumsum.default"]),
        (lambda x: torch.where(x > 0, x, -x), [torch.rand(3)], []),
        (lambda x: torch.ops.aten.where.ScalarOther(x > 0, x, 0.0), [torch.rand(3)], []),
        (lambda x: torch.linalg.vector_norm(x, 2), [torch.rand(3)], []),
        (lambda x: torch.linalg.vector_norm(x, 1), [torch.rand(3)], []),
        (lambda x: torch.linalg.vector_norm(x, math.inf), [torch.rand(3)], []),
        (lambda x: torch.linalg.vector_norm(x, 3), [torch.rand(3)], ["aten.linalg_vector_norm.default"]),
        (lambda x: torch.argmax(x, 1), [torch.rand(3, 2)], []),
        (lambda x: torch.erfinv(x), [torch.rand(3)], ["aten.erfinv.default"]),
        (lambda x: torch.linalg.vector_norm(x), [torch.rand(3)], []),
        (lambda x: x.chunk(2)[1].to(torch.bfloat16), [torch.rand(4)], []),
        (torch.atleast_1d, [torch.rand(4)], ["aten.atleast_1d.default"]),
    ],
)
def test_operators_of_the_list_run_on_the_core(function, inputs, expected):
    assert refused(function, *inputs) == expected


def test_refusals_have_the_list_as_source():
    exported = torch.export.export(nn.Embedding(4, 2), (torch.tensor([1]),), strict=False)
    (ruling,) = check_graph(exported, TARGETS["inf1"]).refused
    assert ruling.source == "Neuron docs, torch-neuron supported operators"
    assert "op_whitelist" in str(ruling.remedy)
    hosted = check_graph(exported, TARGETS["inf1"], allow_host_ops={"aten::embedding"})
    assert [one.verdict for one in hosted.hosted] == [Verdict.HOST]
    asked_for = dataclasses.replace(TARGETS["inf1"], asked_for=frozenset({"aten::embedding"}))
    assert not check_graph(exported, asked_for).refused


@pytest.mark.parametrize(("name", "listed"), [("aten::conv2d", True), ("aten::add_", True), ("aten::sort", False)])
def test_names_of_later_releases_are_on_the_list(name, listed):
    assert is_listed(name) is listed


def node_of(target, *arguments):
    """A graph with one call of an operator."""
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{i}") if isinstance(one, torch.Tensor) else one for i, one in enumerate(arguments)]
    for node, one in zip(nodes, arguments, strict=True):
        if isinstance(one, torch.Tensor):
            node.meta["val"] = one
    call = graph.call_function(target, tuple(nodes))
    call.meta["val"] = target(*arguments)
    return call


def test_conditions_of_listed_operators():
    one_hot, pool = torch.ops.aten.one_hot.default, torch.ops.aten.max_pool3d_with_indices.default
    positions, volume = torch.tensor([1, 0]), torch.rand(1, 2, 2, 2)
    assert "num_classes" in _condition(OpCall.from_node(node_of(one_hot, positions)))
    assert _condition(OpCall.from_node(node_of(one_hot, positions, 4))) is None
    norm, where = torch.ops.aten.norm.Scalar, torch.ops.aten.where
    assert _condition(OpCall.from_node(node_of(norm, volume, 2))) is None
    assert "not 3" in _condition(OpCall.from_node(node_of(norm, volume, 3)))
    assert "two values" in _condition(OpCall.from_node(node_of(where.default, volume > 0)))
    assert _condition(OpCall.from_node(node_of(where.self, volume > 0, volume, volume))) is None
    for position, refusal in ((0, False), (1, True)):
        node = node_of(pool, volume, [2, 2, 2])
        node.graph.call_function(operator.getitem, (node, position))
        assert (_condition(OpCall.from_node(node)) is not None) is refusal


def test_sequences_of_several_lengths_are_refused():
    lstm = nn.LSTM(2, 3)
    weights = [one.detach() for one in lstm.parameters()]
    state = [torch.zeros(1, 2, 3)] * 2
    rest = (True, 1, 0.0, False, False)
    whole = node_of(torch.ops.aten.lstm.input, torch.rand(4, 2, 2), state, weights, *rest, False)
    packed = node_of(torch.ops.aten.lstm.data, torch.rand(8, 2), torch.tensor([2] * 4), state, weights, *rest)
    assert _condition(OpCall.from_node(whole)) is None
    assert "PackedSequence" in _condition(OpCall.from_node(packed))


def test_what_no_core_computes_keeps_the_refusal_of_its_rule(check):
    rulings = [check(torch.sort, torch.rand(4), target=target).refused for target in ("inf1", "inf2")]
    assert rulings[0][0].rule == rulings[1][0].rule and rulings[0][0].code == rulings[1][0].code is not None
