"""torch's decomposition of one call."""

import warnings

import pytest
import torch

from optimum_neuron.compiler.rules import OpCall, decompose


@pytest.fixture
def parts(export):
    def run(function, *inputs):
        node = next(n for n in export(function, *inputs).graph.nodes if n.op == "call_function")
        result = decompose(OpCall.from_node(node))
        return None if result is None else [part.op for part in result]

    return run


def test_composite_operator_is_decomposed(parts):
    assert parts(lambda x: torch.special.expit(x), torch.randn(4)) == ["aten.sigmoid.default"]


def test_core_operator_is_decomposed_where_torch_can(parts):
    def gradient(grad, x, mean, rstd):
        return torch.ops.aten.native_layer_norm_backward.default(
            grad, x, [4], mean, rstd, None, None, [True, False, False]
        )

    result = parts(gradient, torch.randn(2, 4), torch.randn(2, 4), torch.randn(2, 1), torch.randn(2, 1))
    assert {"aten.mul.Tensor", "aten.sum.dim_IntList"} <= set(result)


def test_operator_outside_of_core_is_decomposed_where_torch_can(parts):
    assert parts(torch.embedding, torch.rand(5, 2), torch.zeros(3, dtype=torch.int64)) not in (None, [])


def test_decomposition_that_declines_does_not_count(parts):
    """Regions of 5 / 3 elements are no windows of one size."""
    pool = torch.nn.functional.adaptive_max_pool2d
    assert parts(lambda x: pool(x, 3, return_indices=True), torch.randn(1, 1, 5, 5)) is None


def test_parts_of_results_have_shapes(export):
    node = next(n for n in export(torch.msort, torch.randn(4, 3)).graph.nodes if n.op == "call_function")
    sort, values = decompose(OpCall.from_node(node))
    assert sort.op == "aten.sort.default" and [one.shape for one in values.inputs + values.outputs][-1] == (4, 3)
    assert len(values.outputs) == 1


def test_no_tracer_runs_as_it_patches_modules_of_the_process(monkeypatch, export):
    node = next(n for n in export(torch.special.expit, torch.randn(4)).graph.nodes if n.op == "call_function")
    monkeypatch.setattr(torch.fx.Tracer, "trace", lambda *_, **__: pytest.fail("a tracer runs"))
    assert [part.op for part in decompose(OpCall.from_node(node)) or ()] == ["aten.sigmoid.default"]


def test_custom_operator_cannot_be_decomposed(parts):
    assert parts(torch.histc, torch.randn(4)) is None


def call_of(target):
    graph = torch.fx.Graph()
    node = graph.call_function(target, (graph.placeholder("x"),))
    node.args[0].meta["val"] = node.meta["val"] = torch.ones(2)
    return OpCall.from_node(node)


def test_plain_function_is_not_decomposed():
    assert decompose(call_of(torch.relu)) is None


def test_warnings_of_a_decomposition_are_not_shown():
    def warns(x):
        warnings.warn("slow", stacklevel=1)
        return x + 1

    with torch.library._scoped_library("rules_test", "FRAGMENT") as library:
        library.define("warns(Tensor x) -> Tensor")
        library.impl("warns", warns, "CompositeImplicitAutograd")
        assert [part.op for part in decompose(call_of(torch.ops.rules_test.warns.default))] == ["aten.add.Tensor"]


def test_no_op_has_no_parts(parts):
    assert parts(torch.atleast_1d, torch.randn(4)) == []


def test_data_dependent_decomposition_does_not_count(parts):
    assert parts(lambda bounds: torch.bucketize(1.5, bounds), torch.arange(3.0)) is None


def test_tracing_does_not_change_graph(export):
    exported_program = export(lambda x: x.xlogy_(x), torch.randn(4, 4))
    calls = [node for node in exported_program.graph.nodes if node.op == "call_function"]
    before = str(exported_program.graph), [node.meta["val"]._version for node in calls]
    assert any(decompose(OpCall.from_node(node)) for node in calls)
    assert before == (str(exported_program.graph), [node.meta["val"]._version for node in calls])
