"""Host arithmetic against float64: stored operands, float32 accumulation, one rounding at the end."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures
from optimum_neuron.compiler.lower.arithmetic import HostArithmetic
from optimum_neuron.compiler.lower.choose import MAX_STREAMED_ROWS
from tests.compiler.lower.conftest import needs_bf16_library

EPS = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8}
DTYPES = list(EPS)


def arithmetic(has_bf16_dot=False):
    return HostArithmetic(features=CpuFeatures(isa="AVX512", has_bf16_dot=has_bf16_dot))


def assert_close(actual, exact, magnitude, dtype):
    """Within a rounding to `dtype` and float32's error for sums of that magnitude (at most 256 terms)."""
    assert actual.dtype == dtype and actual.shape == exact.shape
    error = (actual.double() - exact).abs()
    assert (error <= EPS[dtype] * exact.abs() + 256 * 2.0**-24 * magnitude).all(), error.max()


@pytest.mark.parametrize("has_bf16_dot", [False, pytest.param(True, marks=needs_bf16_library)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, MAX_STREAMED_ROWS, MAX_STREAMED_ROWS + 1, 40])
def test_linear_of_one_and_of_many_rows(rows, dtype, has_bf16_dot):
    torch.manual_seed(0)
    for size, bias in itertools.product((7, 48, 192, 256), (None, torch.randn(5).to(dtype))):
        x, w = torch.randn(rows, size).to(dtype), torch.randn(5, size).to(dtype)
        result = arithmetic(has_bf16_dot).linear(x, w, bias)
        exact, magnitude = x.double() @ w.double().T, x.double().abs() @ w.double().abs().T
        exact = exact if bias is None else exact + bias.double()
        assert_close(result, exact, magnitude, dtype)


@pytest.mark.parametrize("shape", [(8,), (1, 1, 8), (2, 3, 8)], ids=str)
def test_linear_keeps_leading_dimensions(shape):
    x, w = torch.randn(shape), torch.randn(4, 8)
    torch.testing.assert_close(arithmetic().linear(x, w), F.linear(x, w))


def exact_attention(query, key, value, mask=None, scale=None):
    """Softmax attention in float64 with every group written out; also the largest value that is mixed."""
    group = query.shape[1] // key.shape[1]
    query, key, value = (
        t.double() for t in (query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1))
    )
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, float("-inf"))
    elif mask is not None:
        scores = scores + mask.double()
    return scores.softmax(-1) @ value, value.abs().amax((-1, -2), keepdim=True)


def tensors(queries, dtype, heads=4, groups=2, keys=9, width=8, value_width=8, batch=2):
    torch.manual_seed(1)
    shapes = [
        (batch, heads, queries, width),
        (batch, heads // groups, keys, width),
        (batch, heads // groups, keys, value_width),
    ]
    return [torch.randn(shape).to(dtype) for shape in shapes]


def row_mask(batch=2, queries=1, keys=9):
    """Row r of the batch sees the first 3 + 4 r keys."""
    mask = torch.arange(keys) < torch.tensor([3, 7])[:batch, None, None, None]
    return mask.expand(batch, 1, queries, keys)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("groups", [1, 2, 4], ids=["every head its own", "grouped", "one key head"])
def test_attention_under_mask_of_each_row(groups, queries, dtype):
    query, key, value = tensors(queries, dtype, groups=groups)
    mask = row_mask(queries=queries)
    result = arithmetic().attention(query, key, value, mask, enable_gqa=groups > 1)
    exact, largest = exact_attention(query, key, value, mask)
    # The library rounds the probabilities to bfloat16 too where it gets bfloat16.
    assert_close(result, exact, largest if dtype == torch.float32 else largest * 300, dtype)
    value[0, :, 3:] = 1e30
    second = arithmetic().attention(query, key, value, mask, enable_gqa=groups > 1)
    assert torch.equal(second[0], result[0]), "what is masked has no influence at all"


MASKS = {
    "none": None,
    "one for all rows": row_mask(1),
    "a head each": torch.stack([row_mask(1)[0].roll(i, -1) for i in range(4)], 1),
    "numbers": torch.randn(2, 1, 1, 9),
    "two dimensions": row_mask(1)[0, 0],
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_one_query_under_every_form_of_mask(mask):
    query, key, value = tensors(1, torch.float32)
    result = arithmetic().attention(query, key, value, mask, enable_gqa=True)
    exact, largest = exact_attention(query, key, value, mask)
    assert_close(result, exact, largest, torch.float32)


def test_scale_wider_values_and_causal_queries():
    query, key, value = tensors(1, torch.float32, value_width=6)
    result = arithmetic().attention(query, key, value, row_mask(), scale=0.7, enable_gqa=True)
    assert_close(result, *exact_attention(query, key, value, row_mask(), scale=0.7), torch.float32)
    query, key, value = tensors(9, torch.float32, groups=1)
    causal = torch.ones(9, 9, dtype=torch.bool).tril()
    result = arithmetic().attention(query, key, value, is_causal=True)
    assert_close(result, *exact_attention(query, key, value, causal), torch.float32)


def test_large_scores_do_not_overflow():
    query, key, value = tensors(1, torch.float32)
    result = arithmetic().attention(query * 1e4, key, value, row_mask(), enable_gqa=True)
    assert result.isfinite().all()
    exact, largest = exact_attention(query * 1e4, key, value, row_mask())
    assert_close(result, exact, largest * 100, torch.float32)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("options", [(3, 2, 1), (2, 2, 0), (3, 1, 1), ((2, 3), (2, 1), (1, 0)), (3, 2, 0)], ids=str)
def test_max_pool_equals_shifted_copies(options, channels_last):
    x = torch.randn(2, 3, 10, 11) - 5  # below zero, so that a border of zeros would win
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    size, stride, padding = ([value, value] if isinstance(value, int) else list(value) for value in options)
    assert torch.equal(arithmetic().max_pool2d(x, size, stride, padding), F.max_pool2d(x, size, stride, padding))


def test_other_max_pools_use_torch():
    x = torch.randn(1, 2, 9, 9)
    assert torch.equal(arithmetic().max_pool2d(x, [2, 2], [2, 2], [0], [2, 2]), F.max_pool2d(x, 2, 2, 0, 2))
    assert torch.equal(arithmetic().max_pool2d(x, [2, 2], ceil_mode=True), F.max_pool2d(x, 2, ceil_mode=True))
    assert torch.equal(arithmetic().max_pool2d(x, [5, 5]), F.max_pool2d(x, 5))
