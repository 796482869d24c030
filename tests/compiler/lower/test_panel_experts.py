"""Weights of experts in panels: each row by its expert; picked, all, and summed experts; which weights take them."""

import dataclasses

import pytest
import torch

from optimum_neuron.compiler.lower import CpuFeatures, panels, probe_compiler
from optimum_neuron.compiler.lower.functional import trace
from optimum_neuron.compiler.lower.panels import experts, readers
from optimum_neuron.compiler.lower.prepare import find
from tests.experts import HIDDEN, arguments, expert_tensors, experts_body, experts_function, experts_specs
from tests.programs import body_of, operators, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")

BF16 = CpuFeatures(isa="AVX512", has_bf16_dot=True)
OPTIONS = {"plain": {}, "inputs first": {"has_bias": True, "is_transposed": True}, "weighs": {"weighs_input": True}}


@pytest.mark.full(days=2)
@pytest.mark.parametrize("is_any_cpu", [True, False])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(64, 32), (38, 50)])
def test_each_row_is_multiplied_by_its_expert(is_any_cpu, num_inputs, num_outputs):
    multiply = dataclasses.replace(experts.KERNEL, flags=()).run if is_any_cpu else experts.EXPERTS
    generator = torch.Generator().manual_seed(0)
    x, weight = (
        torch.randn(*s, generator=generator).bfloat16() for s in ((20, num_inputs), (3, num_outputs, num_inputs))
    )
    expert = torch.tensor([-1, 0, 0, 2, *[1] * 13, 3, 2, 9])
    expected = torch.einsum("pi,poi->po", x.double(), weight.double()[expert.clamp(0, 2)])
    expected[(expert < 0) | (expert > 2)] = 0
    result = multiply(x, panels.panels(weight), expert)
    torch.testing.assert_close(result.double(), expected, atol=2e-5, rtol=1e-5)


def few_tokens(**options):
    """Fewer pairs of a token and an expert than experts, so that they are picked."""
    specs = experts_specs("bfloat16", **options)[3:]
    tokens = (spec(1, 2, dtype="int64"), spec(1, 2), spec(1, HIDDEN, dtype="bfloat16"))
    body = body_of(experts_function(**options), *tokens, *specs)
    weight, x, *weights = expert_tensors("bfloat16", **options)
    return body, arguments(body, torch.tensor([[3, 1]]), [weight[:1], x[:1], *weights])


def many_tokens(**options):
    body, index = experts_body("bfloat16", **options), torch.tensor([[3, 1], [0, 3]]).repeat(12, 1)
    return body, arguments(body, index, expert_tensors("bfloat16", **options))


@pytest.mark.full(days=2)
@pytest.mark.parametrize("make", [few_tokens, many_tokens])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_subgraph_takes_panels(make, options):
    body, values = make(**options)
    (expected,) = body(*values)
    found = [one for one in find(body, BF16) if one.kind == "expert_panels"]
    assert len(found) == 2 and {one.options for one in found} == {(options.get("is_transposed", False),)}
    positions = [one.targets[0] for one in found]
    readers.take_panels(body, positions)
    for position in positions:
        values[position] = panels.panels(values[position], is_transposed=found[0].options[0])
    assert experts.is_in(body, BF16)
    compiled = trace(body, BF16).graph_module
    assert operators(compiled).count("neuron_host.panel_experts.default") == 2
    # In bfloat16, the result of each expert is rounded, not their sum.
    for function in (body, compiled):
        torch.testing.assert_close(function(*values)[0], expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w.transpose(1, 2) + (x @ w),
        lambda x, w: (x @ w) * w.sum(),
        lambda x, w: torch.tensordot(x, w, dims=([0, 2], [0, 2])),
        lambda x, w: x.float() @ w.float(),
    ],
    ids=["both ways", "read otherwise", "another sum", "float32"],
)
def test_other_readers_leave_a_weight_as_it_is(function):
    body = body_of(function, *[spec(4, 8, 8, dtype="bfloat16")] * 2)
    assert not readers.find_readers(body)
