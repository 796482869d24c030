"""Auto-cast against rounding written independently, on bits and on a table of values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler import QUANTIZED_EXPERTS, QUANTIZED_EXPERTS_SUM, QUANTIZED_LINEAR
from optimum_neuron.compiler.passes import auto_cast
from optimum_neuron.compiler.rules import find_rule, known_ops
from optimum_neuron.compiler.rules.matmul import PRODUCT_OPERANDS
from optimum_neuron.compiler.serialize import make_subprogram
from tests.programs import body_of, compile_module, operators, spec

UNIT_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "tf32": 2.0**-11, "fp8_e4m3": 2.0**-4}
NARROW = tuple(UNIT_ROUNDOFF)


def to_fewer_bits(x: torch.Tensor, dropped: int) -> torch.Tensor:
    """Nearest value without the last `dropped` bits of the fraction, ties to even; NaN stays NaN."""
    bits = x.numpy().view(np.uint32).astype(np.uint64)
    kept, rest = bits >> np.uint64(dropped), bits & np.uint64(2**dropped - 1)
    half = np.uint64(2 ** (dropped - 1))
    kept = kept + ((rest > half) | ((rest == half) & (kept & np.uint64(1) == 1)))
    result = torch.from_numpy((kept << np.uint64(dropped)).astype(np.uint32).view(np.float32).copy())
    return torch.where(x.isnan(), x, result)


def fp8_values() -> np.ndarray:
    """Every finite non-negative value of FP8 E4M3 with infinities, in order: codes 0 to 0x77."""
    codes = np.arange(0x78)
    exponents, fractions = codes >> 3, codes & 7
    return np.where(exponents == 0, fractions / 8 * 2.0**-6, (1 + fractions / 8) * 2.0 ** (exponents - 7))


def to_fp8(x: torch.Tensor) -> torch.Tensor:
    values, size = fp8_values(), np.minimum(np.abs(x.double().numpy()), 240.0)
    above = np.minimum(np.searchsorted(values, size), len(values) - 1)
    below = np.maximum(above - 1, 0)
    up, down = values[above] - size, size - values[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    return torch.from_numpy(np.copysign(values[code], x.numpy()).astype(np.float32))


ROUND = {
    "bf16": lambda x: to_fewer_bits(x, 16),
    "tf32": lambda x: to_fewer_bits(x, 13),
    "fp16": lambda x: torch.from_numpy(x.numpy().astype(np.float16).astype(np.float32)),
    "fp8_e4m3": to_fp8,
}


def rounded_by_the_pass(x, dtype):
    """Result of the "all" pass for a value that is exactly `x`."""
    body = auto_cast(body_of(torch.clone, spec(*x.shape)), kind="all", dtype=dtype)
    return body(x)[0]


def same(a, b):
    return torch.equal(a.nan_to_num(7e7), b.nan_to_num(7e7)) and torch.equal(a.isnan(), b.isnan())


@pytest.mark.parametrize("dtype", NARROW)
def test_random_values_of_every_size_are_rounded_to_nearest(dtype):
    torch.manual_seed(0)
    x = torch.randn(20_000) * 2.0 ** torch.randint(-12, 7, (20_000,))
    x = torch.cat([x, x.to(torch.bfloat16).float(), x.to(torch.bfloat16).float() * (1 + 2.0**-11)])
    assert same(rounded_by_the_pass(x, dtype), ROUND[dtype](x))


def test_tf32_rounding_of_random_bits_and_edge_cases():
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(-(2**31), 2**31, (50_000,), generator=generator).to(torch.int32).view(torch.float32)
    patterns = torch.where(patterns.isnan(), torch.full_like(patterns, math.nan), patterns)
    ulp = 2.0**-10
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, 2.0**-126, 3.4028235e38, -3.4028235e38]
    edges += [4.1e34, 4.2e34, 3.3e38, 1 + ulp / 2, 1 + 3 * ulp / 2, -(1 + ulp / 2)]
    edges += [2 - 2.0**-23, 1 + ulp / 2 + 2.0**-23]
    x = torch.cat([patterns, torch.tensor(edges)])
    result = rounded_by_the_pass(x, "tf32")
    assert same(result, to_fewer_bits(x, 13))
    ties = rounded_by_the_pass(torch.tensor([1 + ulp / 2, 1 + 3 * ulp / 2]), "tf32")
    assert ties.tolist() == [1, 1 + 2 * ulp], "ties go to the even neighbor"
    infinite = rounded_by_the_pass(torch.tensor([math.inf, -math.inf, 3.4028235e38]), "tf32")
    assert infinite.tolist() == [math.inf, -math.inf, math.inf]


def test_fp8_saturates_at_240_and_keeps_its_subnormals():
    x = torch.tensor([239.0, 240.0, 241.0, 448.0, 1e30, math.inf, -math.inf, 2.0**-9, 2.0**-10, 1.5 * 2.0**-9, 0.0])
    expected = [240.0, 240.0, 240.0, 240.0, 240.0, 240.0, -240.0, 2.0**-9, 0.0, 2.0**-8, 0.0]
    assert rounded_by_the_pass(x, "fp8_e4m3").tolist() == expected
    assert rounded_by_the_pass(torch.tensor([math.nan]), "fp8_e4m3").isnan().all()


@pytest.mark.parametrize("dtype", NARROW)
def test_matmul_rounds_operands_and_accumulates_in_float32(dtype):
    torch.manual_seed(1)
    x, w = torch.randn(16, 256), torch.randn(64, 256)
    body = auto_cast(body_of(F.linear, spec(16, 256), spec(64, 256)), kind="matmul", dtype=dtype)
    result = body(x, w)[0].double()
    a, b = ROUND[dtype](x).double(), ROUND[dtype](w).double()
    # Accumulated in float32, the result is within 256 roundings of 2**-24 of the exact product of rounded operands.
    assert ((result - a @ b.T).abs() <= 256 * 2.0**-24 * (a.abs() @ b.abs().T)).all()
    error = (result - x.double() @ w.double().T).pow(2).mean().sqrt() / (x.double() @ w.double().T).pow(2).mean().sqrt()
    # Two operands, each off by at most the unit roundoff: rms about 0.8 of it (a third and up for uniform errors).
    assert 0.3 * UNIT_ROUNDOFF[dtype] < error < 1.2 * UNIT_ROUNDOFF[dtype]


PRODUCTS = {
    "linear": (F.linear, [(3, 8), (4, 8), (4,)], (0, 1)),
    "matmul": (torch.matmul, [(2, 3, 8), (8, 4)], (0, 1)),
    "mm": (torch.mm, [(3, 8), (8, 4)], (0, 1)),
    "bmm": (torch.bmm, [(2, 3, 8), (2, 8, 4)], (0, 1)),
    "addmm": (torch.addmm, [(4,), (3, 8), (8, 4)], (1, 2)),
    "baddbmm": (torch.baddbmm, [(2, 3, 4), (2, 3, 8), (2, 8, 4)], (1, 2)),
    "attention": (F.scaled_dot_product_attention, [(1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)], (0, 1, 2)),
    "conv1d": (F.conv1d, [(1, 4, 9), (2, 4, 3), (2,)], (0, 1)),
    "conv2d": (F.conv2d, [(1, 4, 9, 9), (2, 4, 3, 3), (2,)], (0, 1)),
    "conv3d": (F.conv3d, [(1, 2, 4, 4, 4), (2, 2, 3, 3, 3)], (0, 1)),
    "conv2d, padded alike": (lambda x, w: F.conv2d(x, w, padding="same"), [(1, 4, 9, 9), (2, 4, 3, 3)], (0, 1)),
    "conv_transpose2d": (F.conv_transpose2d, [(1, 4, 9, 9), (4, 2, 3, 3), (2,)], (0, 1)),
    "mv": (torch.mv, [(3, 8), (8,)], (0, 1)),
    "dot": (torch.dot, [(8,), (8,)], (0, 1)),
    "inner": (torch.inner, [(3, 8), (4, 8)], (0, 1)),
    "addmv": (torch.addmv, [(3,), (3, 8), (8,)], (1, 2)),
    "addbmm": (torch.addbmm, [(3, 4), (2, 3, 8), (2, 8, 4)], (1, 2)),
    "einsum": (lambda x, y: torch.einsum("bij,bjk->ik", x, y), [(2, 3, 8), (2, 8, 4)], (0, 1)),
}


def backward(gradient, x, weight):
    settings = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return torch.ops.aten.convolution_backward(gradient, x, weight, *settings, [True, False, False])[0]


def of_weights(gradient, x, weight):
    settings = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return torch.ops.aten.convolution_backward(gradient, x, weight, *settings, [False, True, False])[1]


CONVOLVED = [(1, 2, 7, 7), (1, 4, 9, 9), (2, 4, 3, 3)]
PRODUCTS |= {
    "gradient of a convolution": (backward, CONVOLVED, (0, 2)),
    "gradient of its weights": (of_weights, CONVOLVED, (0, 1)),
}


def of_int8(operator, *rest):
    """A product of quantized weights, with its arguments in the order of their first use."""
    return lambda values, x, scale: operator(x, (9 * values).to(torch.int8), scale, *rest)


PRODUCTS |= {
    "quantized": (of_int8(QUANTIZED_LINEAR, None, None), [(4, 8), (3, 8), (4, 1)], (1,)),
    "quantized experts": (of_int8(QUANTIZED_EXPERTS, None), [(2, 4, 8), (3, 8), (2, 4, 1)], (1,)),
    "sum of quantized experts": (of_int8(QUANTIZED_EXPERTS_SUM, None), [(2, 4, 8), (2, 3, 8), (2, 4, 1)], (1,)),
}


@pytest.mark.parametrize(("function", "shapes", "operands"), PRODUCTS.values(), ids=PRODUCTS)
def test_every_matmul_rounds_only_its_operands(function, shapes, operands):
    tensors = [torch.randn(shape) for shape in shapes]
    body = auto_cast(body_of(function, *[spec(*shape) for shape in shapes]), kind="matmul", dtype="bf16")
    narrow = [ROUND["bf16"](t) if index in operands else t for index, t in enumerate(tensors)]
    assert torch.equal(body(*tensors)[0], function(*narrow))
    assert not torch.equal(body(*tensors)[0], function(*tensors))


NOT_FLOAT32 = {"aten._int_mm", "aten._weight_int8pack_mm", "aten._scaled_grouped_mm"}
"""Products whose operands are narrow already."""


def test_every_operator_that_multiplies_is_known():
    rules = ("matmul", "attention", "grouped-matmul", "convolution", "transposed-convolution", "convolution-backward")
    products = {op for op in known_ops() if find_rule(op).name in rules}
    assert len(products) > 25 and products - PRODUCT_OPERANDS.keys() == NOT_FLOAT32


def test_none_returns_same_body_and_other_dtypes_are_unchanged():
    body = body_of(torch.matmul, spec(2, 4), spec(4, 2))
    assert auto_cast(body, kind="none", dtype="bf16") is body
    for dtype in ("bfloat16", "float16", "float64", "int64"):
        other = body_of(torch.matmul, spec(2, 4, dtype=dtype), spec(4, 2, dtype=dtype))
        for kind in ("matmul", "all"):
            assert operators(auto_cast(other, kind=kind, dtype="fp16")) == operators(other)
    plain = body_of(lambda x: x.exp() + 1, spec(4))
    assert operators(auto_cast(plain, kind="matmul", dtype="bf16")) == operators(plain)


def test_shared_operand_is_rounded_once_and_names_are_stable():
    def function(x, v, w):
        return F.linear(x, v) + F.linear(x, w) + F.linear(x, x)

    body = body_of(function, spec(4, 4), spec(4, 4), spec(4, 4))
    casts = [make_subprogram(auto_cast(body, kind="matmul", dtype="bf16")) for _ in range(8)]
    assert operators(casts[0].body).count("aten.to.dtype") == 2 * 3
    assert len({cast.name for cast in casts}) == 1, "the order of the inserted nodes is fixed"


@pytest.mark.parametrize(("kind", "num_rounded"), [("matmul", 2), ("all", 7)])
def test_what_is_rounded_is_not_rounded_again(kind, num_rounded):
    """Neither a result that is an operand, nor an operand behind a write to another tensor."""

    def function(cache, x, w):
        wide = x.exp()
        first = wide @ w
        cache.add_(1)
        return first + wide.t() + wide @ w

    body = auto_cast(body_of(function, *[spec(4, 4)] * 3), kind=kind, dtype="bf16")
    assert operators(body).count("aten.to.dtype") == 2 * num_rounded


def test_all_rounds_every_result_and_each_view_once():
    def function(x, y):
        return (x.exp() * y).t().reshape(-1) - 1, torch.arange(301, 304, 2).float()

    body = auto_cast(body_of(function, spec(2, 3), spec(2, 3), num_outputs=2), kind="all", dtype="bf16")
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    near = ROUND["bf16"]
    product = near(near(x.exp()) * y).t().reshape(-1)
    result, counted = body(x, y)
    assert torch.equal(result, near(product - 1))
    assert counted.tolist() == [300, 304], "what becomes float32 is rounded too; ties go to the even neighbor"


def test_all_rounds_in_place_results_in_place():
    def function(cache, x):
        low, high = cache.chunk(2)
        low.add_(x)
        high.copy_(x)
        return cache + 0

    body = auto_cast(body_of(function, spec(2, 3), spec(1, 3)), kind="all", dtype="bf16")
    x, cache = ROUND["bf16"](torch.randn(1, 3)), torch.full((2, 3), 1.0)
    actual = body(cache, x)[0]
    expected = torch.cat([ROUND["bf16"](x + 1), x])
    assert torch.equal(cache, expected) and torch.equal(actual, expected)


def test_values_that_are_moved_are_not_rounded():
    body = body_of(lambda cache, x: cache.copy_(x), spec(8), spec(8))
    x = torch.randn(8, generator=torch.Generator().manual_seed(0))
    (result,) = auto_cast(body, kind="all", dtype="bf16")(torch.zeros(8), x)
    assert torch.equal(result, x)


def test_rounding_is_of_the_module_and_the_size_of_its_value():
    body = body_of(lambda x, w: (x @ w).exp(), spec(2, 4), spec(4, 3))
    for node in body.graph.nodes:
        node.meta["module_path"] = f"layers.{node.op}"
    calls = [node for node in auto_cast(body, kind="all", dtype="bf16").graph.nodes if node.op == "call_function"]
    # Two operands, then two results, each rounded by two calls.
    assert [node.meta["module_path"] for node in calls] == ["layers.placeholder"] * 4 + ["layers.call_function"] * 6
    sizes = [tuple(node.meta["val"].shape) for node in calls]
    assert sizes == [(2, 4)] * 2 + [(4, 3)] * 2 + [(2, 3)] * 6


def test_tensor_written_between_matmuls_is_rounded_again():
    def function(cache, x):
        before = cache @ x
        cache[0].copy_(x[:, 0])
        return before, cache @ x

    body = auto_cast(body_of(function, spec(3, 3), spec(3, 3), num_outputs=2), kind="matmul", dtype="bf16")
    cache, x = torch.randn(3, 3), torch.randn(3, 3)
    near = ROUND["bf16"]
    written = torch.cat([x[:, 0][None], cache[1:]])
    expected = near(cache) @ near(x), near(written) @ near(x)
    assert all(torch.equal(a, b) for a, b in zip(body(cache, x), expected, strict=True))


def test_compile_rounds_every_body():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    plain = compile_module(model, {"x": spec(2, 8)}).program
    cast = compile_module(model, {"x": spec(2, 8)}, auto_cast="matmul", auto_cast_type="fp8_e4m3").program
    assert plain.content_hash() != cast.content_hash()
    (body,) = cast.subprograms.values()
    assert operators(body.body).count("aten.clamp.default") == 4
    assert cast.graphs["graph"].calls[0].subprogram == body.name
