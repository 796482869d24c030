"""The view that rules have of a call."""

import operator

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler.rules import OpCall, base_name, op_name, operator_of, region_of
from optimum_neuron.compiler.rules.call import FUNCTIONALIZED
from optimum_neuron.errors import ConfigError
from tests.raising import raises


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("aten.add.Tensor", "aten.add"),
        ("aten.add_.Tensor", "aten.add"),
        ("aten.__and__.Tensor", "aten.__and__"),
        ("aten._softmax.default", "aten._softmax"),
        ("aten.sort", "aten.sort"),
    ],
)
def test_names_lose_overload_and_in_place_underscore(op, name):
    assert base_name(op) == name


def test_non_aten_targets_have_names():
    assert op_name(operator.getitem) == "python.getitem"
    assert op_name(torch.ops.higher_order.cond) == "higher_order.cond"


def call_of(export, function, *inputs):
    node = next(n for n in export(function, *inputs).graph.nodes if n.op == "call_function")
    return OpCall.from_node(node)


def test_tensors_and_arguments_are_named(export):
    call = call_of(export, lambda x, y: torch.cat([x, y], dim=-1), torch.zeros(2, 3), torch.zeros(2, 1))
    assert call.op == "aten.cat.default"
    assert call.inputs == (TensorSpec(shape=(2, 3), dtype="float32"), TensorSpec(shape=(2, 1), dtype="float32"))
    assert call.outputs == (TensorSpec(shape=(2, 4), dtype="float32"),)
    assert call.arguments["dim"] == -1 and call.arguments["tensors"] == list(call.inputs)


def test_defaults_are_filled_in(export):
    call = call_of(export, lambda x: torch.topk(x, 2)[0], torch.zeros(4))
    assert (call.arguments["k"], call.arguments["largest"], call.arguments["dim"]) == (2, True, -1)
    assert len(call.outputs) == 2


def test_unknown_sizes_are_minus_one_and_named(export):
    call = call_of(export, torch.nonzero, torch.zeros(4, 4))
    assert call.outputs[0].shape == (-1, 2)
    assert len(call.output_symbols) == 1 and not call.input_symbols


def test_sizes_of_aliased_inputs_are_known(export):
    matrix = torch.zeros(4, 8)
    call = call_of(export, torch.addmv, matrix[:, 0], matrix, torch.zeros(8))
    assert [spec.shape for spec in call.tensors] == [(4,), (4, 8), (8,), (4,)]


def test_unexported_graph_is_refused():
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
    with raises(ConfigError, node="relu_default", op="call_function"):
        OpCall.from_node(node)


@pytest.mark.parametrize("wrapper", ["run_and_save_rng_state", "run_with_rng_state", "with_effects"])
def test_calls_in_wrappers_are_seen_with_the_place_of_their_users(wrapper):
    """Operators that torch's partitioner and its tokens of effects wrap; a wrapper itself knows no place."""
    from torch._higher_order_ops.effects import with_effects
    from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

    kinds = {"run_and_save_rng_state": run_and_save_rng_state, "run_with_rng_state": run_with_rng_state}
    graph = torch.fx.Graph()
    x, first = graph.placeholder("x"), graph.placeholder("first")
    x.meta["val"], first.meta["val"] = torch.zeros(2, 3), torch.zeros(4, dtype=torch.uint8)
    before = () if wrapper == "run_and_save_rng_state" else (first,)
    inside = torch.ops.aten.bernoulli.p
    node = graph.call_function(kinds.get(wrapper, with_effects), (*before, inside, x, 0.5))
    graph.call_function(operator.getitem, (node, 0))  # has no place
    user = graph.call_function(operator.getitem, (node, 1))
    user.meta["stack_trace"] = '  File "/home/me/model.py", line 7, in forward\n    x = drop(x)\n'
    call = OpCall.from_node(node)
    assert (call.op, call.arguments["p"], operator_of(node)) == ("aten.bernoulli.p", 0.5, inside)
    assert [spec.shape for spec in call.inputs] == [(2, 3)] and [spec.shape for spec in call.outputs] == [(2, 3)]
    assert call.source_line is not None and call.source_line.endswith("model.py:7")
    assert str(node.target) == str(kinds.get(wrapper, with_effects)) and len(graph.nodes) == 5


@pytest.mark.parametrize("name", FUNCTIONALIZED)
def test_operators_that_write_to_their_arguments_are_found_in_their_wrapper(name):
    graph = torch.fx.Graph()
    inside = torch.ops.aten.add_.Tensor
    node = graph.call_function(getattr(torch.ops.higher_order, name), (inside,), {"other": graph.placeholder("x")})
    assert operator_of(node) is inside


@pytest.mark.parametrize("target", [torch.ops.aten.relu.default, torch.ops.higher_order.cond, operator.getitem])
def test_calls_without_a_wrapper_are_their_own_operators(target):
    graph = torch.fx.Graph()
    assert operator_of(graph.call_function(target, (graph.placeholder("x"), 0))) is target


def test_parts_of_a_region():
    graph, wrappers = torch.fx.Graph(), torch.ops.higher_order
    inside, x, y = map(graph.placeholder, ("inside", "x", "y"))
    settings = ("cpu", torch.bfloat16, True, False)
    region = graph.call_function(wrappers.wrap_with_autocast, (*settings, inside, x, y))
    assert region_of(region) == (settings, inside, (x, y))
    assert region_of(graph.call_function(wrappers.wrap_with_set_grad_enabled, (False, inside))) == (
        (False,),
        inside,
        (),
    )
    assert region_of(graph.call_function(torch.ops.aten.add.Tensor, (x, y))) is None and region_of(x) is None


def test_arguments_in_the_graph_are_found_by_name():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.zeros(2, 3)
    node = graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [1]), {"keepdim": True})
    node.meta["val"] = torch.zeros(2, 1)
    call = OpCall.from_node(node)
    assert (call.source("self"), call.source("dim"), call.source("keepdim")) == (x, [1], True)
    assert operator_of(node) is torch.ops.aten.sum.dim_IntList
