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


def product(operator, arguments, parameters=()):
    """A subprogram of one operator."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"arg{index}") for index in range(len(arguments))]
    with FakeTensorMode() as mode:
        for node, tensor in zip(nodes, arguments, strict=True):
            node.meta["val"] = mode.from_tensor(tensor)
        result = graph.call_function(operator, (*nodes, *parameters))
        result.meta["val"] = operator(*(node.meta["val"] for node in nodes), *parameters)
    graph.output((result,))
    return fx.GraphModule({}, graph)


OPS = torch.ops.aten
PRODUCTS = {
    "linear": (OPS.linear.default, [(2, 40, 24), (56, 24)]),
    "linear with bias": (OPS.linear.default, [(2, 40, 24), (56, 24), (56,)]),
    "bmm": (OPS.bmm.default, [(2, 40, 24), (2, 24, 56)]),
    "matmul": (OPS.matmul.default, [(2, 3, 40, 24), (24, 56)]),
    "conv2d": (OPS.conv2d.default, [(2, 4, 10, 10), (6, 4, 3, 3), (6,)], ([1, 1], [1, 1])),
}


@pytest.mark.parametrize("has_bf16_dot", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_16_bits_are_rounded_once_everywhere(name, dtype, has_bf16_dot, monkeypatch):
    monkeypatch.setattr(aten, "probe_cpu", lambda: CpuFeatures(isa="AVX2", has_bf16_dot=has_bf16_dot))
    monkeypatch.setattr(aten, "CHUNK_BYTES", 16 * 4 * 24)
    operator, shapes, *parameters = PRODUCTS[name]
    generator = torch.Generator().manual_seed(0)
    arguments = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    body = product(operator, arguments, *parameters)
    exact = operator(*(tensor.double() for tensor in arguments), *(parameters[0] if parameters else ()))
    rewritten = aten._rewritten(body)
    casts = rewritten.graph.find_nodes(op="call_function", target=torch.Tensor.to)
    assert bool(casts) is not has_bf16_dot, "wide only where the CPU has no units for 16 bits"
    (result,) = rewritten(*arguments)
    assert result.dtype == dtype and result.shape == exact.shape
    if not has_bf16_dot:
        torch.testing.assert_close(result, exact.to(dtype), atol=1e-4, rtol=torch.finfo(dtype).eps)


def test_few_rows_and_wide_operands_are_multiplied_as_they_are(monkeypatch):
    monkeypatch.setattr(aten, "probe_cpu", lambda: CpuFeatures(isa="AVX2", has_bf16_dot=False))
    for rows, dtype in ((4, torch.bfloat16), (64, torch.float32)):
        arguments = [torch.ones(rows, 24, dtype=dtype), torch.ones(56, 24, dtype=dtype)]
        rewritten = aten._rewritten(product(OPS.linear.default, arguments))
        assert not rewritten.graph.find_nodes(op="call_function", target=torch.Tensor.to)


def test_infinite_sums_stay_infinite():
    x, weight = torch.ones(1, 8, dtype=torch.bfloat16), torch.full((2, 8), 3e38, dtype=torch.bfloat16)
    weight[1] = 1
    assert aten.linear_of_bf16(x, weight).tolist() == [[float("inf"), 8.0]]


@pytest.mark.parametrize("kind", ["none", "bool", "float"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("num_key_heads", [1, 2, 4])
@pytest.mark.parametrize("num_queries", [1, 3])
def test_queries_with_shared_key_heads(num_queries, num_key_heads, dtype, kind):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(2, 4, num_queries, 16, generator=generator).to(dtype)
    key = torch.randn(2, num_key_heads, 16, 10, generator=generator).to(dtype).transpose(-1, -2)
    value = torch.randn(2, num_key_heads, 10, 16, generator=generator).to(dtype)
    limits = torch.tensor([[3], [10 - num_queries + 1]]) + torch.arange(num_queries)
    values = torch.arange(10)[None, None, None] < limits[:, None, :, None]
    mask = {"none": None, "bool": values, "float": torch.where(values, 0.5, float("-inf"))}[kind]
    result = aten.attention(query, key, value, mask, scale=0.3, enable_gqa=True)
    wide = mask.double() if kind == "float" else mask
    attend = torch.nn.functional.scaled_dot_product_attention
    exact = attend(query.double(), key.double(), value.double(), wide, scale=0.3, enable_gqa=True)
    assert result.dtype == dtype and result.shape == query.shape
    tolerance = ROUNDOFF if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(result.double(), exact, atol=tolerance, rtol=tolerance)
