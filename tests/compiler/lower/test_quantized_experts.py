"""Host code of quantized experts: rows with weights of their own, and prompts whose experts run on their tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler import PICK_EXPERTS, QUANTIZED_EXPERTS, QUANTIZED_EXPERTS_SUM, work_of
from optimum_neuron.compiler.lower import CpuFeatures
from optimum_neuron.compiler.lower.functional import trace
from optimum_neuron.compiler.rules import OpCall, judge
from optimum_neuron.hardware import resolve_target
from optimum_neuron.models.common import run_experts
from optimum_neuron.simulator.work import work_of_graph
from optimum_neuron.weights import Scheme, dequantize
from tests.programs import body_of, operators, spec

NUM_EXPERTS, HIDDEN, WIDTH = 4, 64, 96
SCHEMES = ("int8", "int8-g32", "fp8-g32", "int4", "int4-g32-zp", "mxfp4")
FEATURES = CpuFeatures(isa="AVX512", has_bf16_dot=True)


def stored(scheme, num_outputs, num_inputs):
    """Return the parts of random experts, and their plain weights."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(NUM_EXPERTS, num_outputs, num_inputs, generator=generator) / 4
    each = [Scheme.parse(scheme).quantize(matrix) for matrix in weight]
    parts = {part: torch.stack([one[part] for one in each]) for part in each[0]}
    return parts, dequantize(parts["values"], parts["scale"], parts.get("zero"))


def function_of(scheme):
    """Return experts as a function of indices, weights, tokens, and parts; and the parts."""
    up, plain_up = stored(scheme, 2 * WIDTH, HIDDEN)
    down, plain_down = stored(scheme, HIDDEN, WIDTH)

    def gate(x):
        left, right = x.chunk(2, -1)
        return F.silu(left) * right

    def function(index_NK, weight_NK, x_ND, *parts):
        common = {"num_experts": NUM_EXPERTS, "has_gate": True, "has_bias": False, "has_post_expert_norm": False}
        experts = SimpleNamespace(**common, is_transposed=False, _apply_gate=gate)
        names = ("values", "scale", "zero")[: len(parts) // 2]
        for name, own in (("gate_up_proj", parts[: len(names)]), ("down_proj", parts[len(names) :])):
            for part, tensor in zip(names, own, strict=True):
                setattr(experts, name if part == "values" else f"{name}_{part}", tensor)
        return run_experts(experts, x_ND, index_NK, weight_NK)

    def plain(index_NK, weight_NK, x_ND):
        wide = gate(torch.einsum("nd,eod->neo", x_ND, plain_up))
        out_NED = torch.einsum("nef,edf->ned", wide, plain_down)
        return (out_NED.gather(1, index_NK[..., None].expand(-1, -1, HIDDEN)) * weight_NK[..., None]).sum(1)

    return function, plain, [*up.values(), *down.values()]


@pytest.mark.full(days=4)
@pytest.mark.parametrize("num_tokens", [1, 3, 24])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_host_code_agrees_with_plain_experts(scheme, num_tokens):
    function, plain, parts = function_of(scheme)
    generator = torch.Generator().manual_seed(num_tokens)
    index_NK = torch.rand(num_tokens, NUM_EXPERTS, generator=generator).topk(2).indices
    arguments = [index_NK, torch.rand(num_tokens, 2, generator=generator)]
    arguments += [torch.randn(num_tokens, HIDDEN, generator=generator), *parts]
    specs = [spec(*one.shape, dtype=str(one.dtype).removeprefix("torch.")) for one in arguments]
    body = body_of(function, *specs)
    by_name = {}
    for node, one in zip(body.graph.find_nodes(op="placeholder"), body_order(body, arguments), strict=True):
        assert node.meta["val"].shape == one.shape and node.meta["val"].dtype == one.dtype
        by_name[node.name] = one
    expected = plain(*arguments[:3])
    traced = trace(body, FEATURES).graph_module
    names = operators(traced)
    assert not any("quantized" in name or "pick" in name for name in names)
    assert names.count("neuron_host.experts_linear.default") == (2 if num_tokens == 24 else 0)
    for run in (body, traced):
        torch.testing.assert_close(run(*by_name.values())[0], expected, atol=1e-4, rtol=1e-4)


def body_order(body, arguments):
    """Return the arguments in the order of a body; equal specs keep their order."""
    left = list(arguments)
    for node in body.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        place = next(i for i, one in enumerate(left) if one.shape == value.shape and one.dtype == value.dtype)
        yield left.pop(place)


@pytest.mark.parametrize("target", ["inf2", "trn1", "trn2", "trn3"])
@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4", "mxfp4"])
def test_schemes_are_legal_and_count_stored_bytes(scheme, target):
    parts, _ = stored(scheme, 32, HIDDEN)

    def step(x_PNI, index_P, values, scale):
        return QUANTIZED_EXPERTS(x_PNI, PICK_EXPERTS(values, index_P), scale[index_P], None)

    arguments = (torch.randn(2, 1, HIDDEN), torch.tensor([0, 3]), *parts.values())
    module = torch.nn.Module()
    module.forward = step
    graph_module = torch.export.export(module, arguments).graph_module
    calls = [OpCall.from_node(node) for node in graph_module.graph.nodes if "neuron" in str(node.target)]
    for call in calls:
        assert judge.judge_call(call, resolve_target(target).value).verdict is not Verdict.UNSUPPORTED
    work = work_of_graph(graph_module, roles=["value", "value", "weight", "weight"]).total
    assert work.weight_bytes == sum(one.numel() * one.element_size() for one in parts.values()) * 2 // NUM_EXPERTS
    assert work.product_flops == 2 * 2 * 32 * HIDDEN


def test_sums_of_experts_are_scaled_one_by_one():
    parts, _ = stored("int8", 32, HIDDEN)
    module = torch.nn.Module()
    module.forward = lambda x, values, scale: QUANTIZED_EXPERTS_SUM(x, values, scale, None)
    x_ENI = torch.randn(NUM_EXPERTS, 3, HIDDEN)
    graph = torch.export.export(module, (x_ENI, *parts.values())).graph_module.graph
    (node,) = graph.find_nodes(op="call_function", target=QUANTIZED_EXPERTS_SUM)
    work = work_of(OpCall.from_node(node))
    assert work.flops == 2 * NUM_EXPERTS * 3 * 32 * HIDDEN and work.vector_elements == NUM_EXPERTS * 3 * 32
