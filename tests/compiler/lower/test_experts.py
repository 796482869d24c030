"""Experts that run on the tokens that chose them, against every expert on all tokens."""

import pytest
import torch

from optimum_neuron.compiler.lower import CpuFeatures, probe_compiler
from optimum_neuron.compiler.lower.functional import trace
from optimum_neuron.compiler.passes import auto_cast
from optimum_neuron.compiler.passes.alike import divide
from tests.compiler.lower.conftest import needs_bf16_library
from tests.experts import NUM_TOKENS, arguments, expert_tensors, experts_body, experts_function, experts_specs
from tests.programs import body_of, operators, spec, subprogram_of

FEATURES = CpuFeatures(isa="AVX512", has_bf16_dot=True)
ROUTES = {
    "uneven": torch.tensor([[0, 1], [0, 3], [3, 0], [1, 0]]).repeat(NUM_TOKENS // 4, 1),
    "no token for some": torch.tensor([[3, 1]]).repeat(NUM_TOKENS, 1),
    "one for all": torch.full((NUM_TOKENS, 1), 2),
    "experts of other cores": torch.tensor([[-2, 3], [5, 4], [1, 7], [2, -1]]).repeat(NUM_TOKENS // 4, 1),
    "none here": torch.tensor([[-1, 9]]).repeat(NUM_TOKENS, 1),
}
OPTIONS = {
    "plain": {},
    "biases": {"has_bias": True},
    "inputs first": {"has_bias": True, "is_transposed": True},
    "weighs its input": {"weighs_input": True},
}
GROUPED = "neuron_host.experts_linear.default"


def traced(body):
    """The function for the host; every test sees that no expert runs on all tokens in it."""
    graph_module = trace(body, FEATURES).graph_module
    names = operators(graph_module)
    assert names.count(GROUPED) == 2 and "aten.bmm.default" not in names
    return graph_module


@torch.no_grad()
def compare(results, body, values, tolerance):
    torch.testing.assert_close(results[0], body(*values)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.full(days=3)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=needs_bf16_library)])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_chosen_experts_give_the_sum_of_all(dtype, options):
    for index_NK in ROUTES.values():
        num_chosen = index_NK.shape[1]
        body = experts_body(dtype, num_chosen=num_chosen, **options)
        values = arguments(body, index_NK, expert_tensors(dtype, num_chosen=num_chosen, **options))
        # In bfloat16, the result of each expert is rounded, not their sum.
        compare(traced(body)(*values), body, values, 1e-5 if dtype == "float32" else 2**-6)


@pytest.mark.full(days=3)
@pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
def test_compiled_code_calls_the_product_of_experts(functions):
    body = experts_body("float32", has_bias=True, is_transposed=True)
    tensors = expert_tensors("float32", has_bias=True, is_transposed=True)
    for name in ("uneven", "experts of other cores", "none here"):
        values = arguments(body, ROUTES[name], tensors)
        compare(functions["experts"](values), body, values, 1e-5)


def test_products_of_rounded_operands_are_grouped():
    body = auto_cast(experts_body("float32"), kind="matmul", dtype="bf16")
    values = arguments(body, ROUTES["uneven"], expert_tensors("float32"))
    compare(traced(body)(*values), body, values, 1e-5)


def test_parts_of_experts_on_several_cores_are_grouped():
    """What all cores compute alike is computed once; the rest still shows which experts a token chose."""
    subprogram = subprogram_of(experts_function(), *experts_specs("float32"))
    inputs = [node for node in subprogram.body.graph.nodes if node.op == "placeholder"]
    alike, own = divide(subprogram, [i for i, node in enumerate(inputs) if node.meta["val"].dim() == 3])
    assert not any("tensordot" in name for name in operators(alike.subprogram.body))
    traced(own.subprogram.body)


def test_other_products_stay():
    def masked(hidden, down):
        return torch.tensordot(torch.where(hidden > 1, hidden, 0.0), down, dims=([0, 2], [0, 1]))

    shapes = (spec(4, NUM_TOKENS, 8), spec(4, 8, 40))
    without_bf16 = CpuFeatures(isa="AVX512", has_bf16_dot=False)
    for body, features in ((body_of(masked, *shapes), FEATURES), (experts_body("bfloat16"), without_bf16)):
        assert GROUPED not in operators(trace(body, features).graph_module)
