"""Operators that the ATen tier calls in another form, against float64."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from optimum_neuron.compiler.lower import CpuFeatures, aten

ROUNDOFF = 2.0**-8


def head(*shape: int, bias: bool = False) -> fx.GraphModule:
    """A subprogram: a float32 product of bf16 operands, as heads of decoders are."""
    graph, ops = fx.Graph(), torch.ops.aten
    with FakeTensorMode():
        sizes = [torch.empty(*shape, dtype=torch.bfloat16), torch.empty(40, shape[-1], dtype=torch.bfloat16)]
        sizes += [torch.empty(40)] if bias else []
    arguments = [graph.placeholder(f"arg{index}") for index in range(len(sizes))]
    casts = [graph.call_function(ops.to.dtype, (argument, torch.float32)) for argument in arguments[:2]]
    for node, value in zip([*arguments, *casts], [*sizes, *(size.float() for size in sizes[:2])], strict=True):
        node.meta["val"] = value
    graph.output((graph.call_function(ops.linear.default, (*casts, *arguments[2:])),))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("has_bf16_dot", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 64), (2, 64), (4, 64), (9, 64)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_product_of_bf16_operands_keeps_more_than_bf16(shape, bias, has_bf16_dot, monkeypatch):
    monkeypatch.setattr(aten, "probe_cpu", lambda: CpuFeatures(isa="AVX512", has_bf16_dot=has_bf16_dot))
    monkeypatch.setattr(aten, "CHUNK_BYTES", 16 * 4 * 64)
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*size, generator=generator).bfloat16() for size in (shape, (40, 64)))
    biases = [torch.randn(40, generator=generator)] if bias else []
    (result,) = aten.aten_function(head(*shape, bias=bias))([x, weight, *biases])
    exact = torch.nn.functional.linear(x.double(), weight.double(), *(b.double() for b in biases))
    assert result.dtype == torch.float32 and result.shape == exact.shape
    largest = torch.nn.functional.linear(x.double().abs(), weight.double().abs()).max()
    assert (result - exact).abs().max() < ROUNDOFF**2 * largest


def test_infinite_sums_stay_infinite():
    x, weight = torch.ones(1, 8, dtype=torch.bfloat16), torch.full((2, 8), 3e38, dtype=torch.bfloat16)
    weight[1] = 1
    assert aten.linear_of_bf16(x, weight).tolist() == [[float("inf"), 8.0]]


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
def test_one_query_with_shared_key_heads(num_key_heads, dtype, kind):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(2, 4, 1, 16, generator=generator).to(dtype)
    key = torch.randn(2, num_key_heads, 16, 10, generator=generator).to(dtype).transpose(-1, -2)
    value = torch.randn(2, num_key_heads, 10, 16, generator=generator).to(dtype)
    values = torch.arange(10)[None, None, None] < torch.tensor([3, 10])[:, None, None, None]
    mask = {"none": None, "bool": values, "float": torch.where(values, 0.5, float("-inf"))}[kind]
    result = aten.attention(query, key, value, mask, scale=0.3, enable_gqa=True)
    wide = mask.double() if kind == "float" else mask
    attend = torch.nn.functional.scaled_dot_product_attention
    exact = attend(query.double(), key.double(), value.double(), wide, scale=0.3, enable_gqa=True)
    assert result.dtype == dtype and result.shape == query.shape
    tolerance = ROUNDOFF if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(result.double(), exact, atol=tolerance, rtol=tolerance)
