"""The host's attention kernel against torch in float64, for every vector extension that this CPU has."""

import dataclasses
import itertools

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures, attention, kernel, probe_compiler, probe_cpu
from optimum_neuron.compiler.lower.attention import attend, is_faster
from optimum_neuron.compiler.lower.generate import generate
from optimum_neuron.compiler.serialize import body_to_dict
from tests.compiler.lower.conftest import compiled
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")

EXTENSIONS = ("DEFAULT", "AVX2", "AVX512")
MAX_ERROR, MAX_RMS_ERROR = 2e-6, 1e-6
"""Relative to the largest result and to their root mean square; one operation in float32 has 6e-8, and terms cancel."""


@pytest.fixture(params=EXTENSIONS)
def isa(request, monkeypatch):
    """Each kernel in turn."""
    if request.param not in EXTENSIONS[: EXTENSIONS.index(probe_cpu().isa) + 1]:
        pytest.skip("not on this CPU")
    features = dataclasses.replace(probe_cpu(), isa=request.param)
    monkeypatch.setattr(kernel, "probe_cpu", lambda: features)
    return request.param


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def inputs(batch, num_heads, num_key_heads, num_queries, num_keys, width, value_width=None, scale=1.0):
    """In memory as linear layers leave them: batch, token, head, width."""
    generator = torch.Generator().manual_seed(num_queries * 1000 + num_keys)

    def tensor(num_heads, length, width):
        return (torch.randn(batch, length, num_heads, width, generator=generator) * scale).transpose(1, 2)

    return (
        tensor(num_heads, num_queries, width),
        tensor(num_key_heads, num_keys, width),
        tensor(num_key_heads, num_keys, value_width or width),
    )


def check(query, key, value, mask=None, is_causal=False, scale=None):
    """Compare with torch in float64; return the result."""
    result = attend(query, key, value, mask, is_causal=is_causal, scale=scale)
    wide = mask.double() if mask is not None and mask.is_floating_point() else mask
    group = query.shape[1] // key.shape[1]
    many = (tensor.double().repeat_interleave(group, 1) for tensor in (key, value))
    expected = F.scaled_dot_product_attention(query.double(), *many, wide, is_causal=is_causal, scale=scale)
    assert result.shape == expected.shape and result.dtype == torch.float32 and result.isfinite().all()
    assert result.transpose(1, 2).is_contiguous()
    error = result.double() - expected
    assert error.abs().max() <= MAX_ERROR * expected.abs().max()
    assert error.square().mean().sqrt() <= MAX_RMS_ERROR * expected.square().mean().sqrt()
    return result


@pytest.mark.full(days=2)
@pytest.mark.parametrize("width", [8, 17, 32, 64, 80, 128])
def test_lengths_and_widths(isa, width):
    lengths = [(1, 1), (1, 300), (2, 15), (5, 17), (6, 64), (7, 65), (13, 128), (48, 129), (70, 300)]
    for num_queries, num_keys in lengths:
        check(*inputs(2, 3, 3, num_queries, num_keys, width))


def test_every_number_of_queries_and_many_of_keys(isa):
    for num_queries in range(1, 71):
        check(*inputs(1, 1, 1, num_queries, 1 + num_queries * 37 % 150, 16))


@pytest.mark.parametrize(
    "shape", [(1, 12, 12, 128, 128, 32), (1, 12, 12, 197, 197, 64), (1, 2, 2, 1500, 1500, 64), (1, 9, 3, 512, 512, 64)]
)
def test_shapes_of_models_on_two_threads(isa, two_threads, shape):
    query, key, value = inputs(*shape)
    check(query, key, value)
    check(query, key, value, is_causal=True)


def test_thread_count_does_not_change_bits(isa, two_threads):
    arguments = inputs(2, 6, 2, 200, 300, 64)
    several = attend(*arguments)
    torch.set_num_threads(1)
    assert torch.equal(attend(*arguments), several)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_masks_of_every_shape(isa, dtype):
    query, key, value = inputs(2, 4, 2, 50, 150, 24)
    for sizes in itertools.product((1, 2), (1, 4), (1, 50), (1, 150)):
        mask = torch.rand(sizes, generator=torch.Generator().manual_seed(7)) < 0.7
        mask[..., :1] = True
        if dtype == torch.float32:
            mask = torch.randn(sizes).masked_fill(~mask, float("-inf"))
        check(query, key, value, mask)
        check(query, key, value, mask.expand(2, 4, 50, 150))
    check(query, key, value, mask[0, 0])
    check(query, key, value, mask.transpose(-1, -2).contiguous().transpose(-1, -2))


def test_masks_that_hide_both_ends(isa):
    query, key, value = inputs(1, 2, 2, 140, 400, 32)
    tokens, slots = torch.arange(140)[:, None], torch.arange(400)
    for mask in (slots < 130, slots <= tokens, (slots <= tokens) & (slots > tokens - 20), slots >= 200):
        mask = mask.expand(1, 1, 140, 400)
        check(query, key, value, mask.contiguous())
        check(query, key, value, torch.zeros(()).masked_fill(~mask, float("-inf")))
        check(query, key, value, torch.zeros(()).masked_fill(~mask, torch.finfo(torch.float32).min))


def test_fully_masked_queries_match_torch(isa):
    query, key, value = inputs(1, 2, 2, 20, 140, 32)
    mask = torch.ones(20, 140, dtype=torch.bool)
    mask[3] = False
    assert not check(query, key, value, mask)[:, :, 3].any()
    assert not check(query, key, value, torch.zeros(20, 140).masked_fill(~mask, float("-inf")))[:, :, 3].any()
    # The lowest number is no infinity: all keys are alike then.
    lowest = check(query, key, value, torch.zeros(20, 140).masked_fill(~mask, torch.finfo(torch.float32).min))
    torch.testing.assert_close(lowest[:, :, 3], value.mean(2))
    assert not attend(query, key, value, mask.new_zeros(1, 140)).any()


def test_causal_with_mask_and_different_lengths(isa):
    for num_queries, num_keys in [(1, 40), (100, 30), (130, 300), (300, 130)]:
        query, key, value = inputs(1, 4, 2, num_queries, num_keys, 40)
        check(query, key, value, is_causal=True)
        both = torch.ones(num_queries, num_keys, dtype=torch.bool).tril()
        padding = torch.arange(num_keys) < 25
        result = attend(query, key, value, padding[None], is_causal=True)
        torch.testing.assert_close(result, check(query, key, value, both & padding), rtol=1e-5, atol=1e-6)


def test_any_strides_scale_and_value_width(isa):
    query, key, value = inputs(2, 4, 4, 30, 70, 20, value_width=36)
    check(query, key, value, scale=0.3)
    check(query, key.transpose(-1, -2).contiguous().transpose(-1, -2), value)
    check(query.contiguous(), key.flip(-1), value[..., ::2], scale=-0.1)
    check(query.expand(2, 4, 30, 20), key[:1].expand_as(key), value)


def test_large_scores_do_not_overflow_and_nan_propagates(isa):
    query, key, value = inputs(1, 1, 1, 10, 200, 64, scale=8.0)
    assert attend(query, key, value, scale=4.0).isfinite().all()
    # Scores of several thousand have their own rounding errors, so only the maximum can be compared.
    expected = F.scaled_dot_product_attention(query.double(), key.double(), value.double(), scale=4.0)
    torch.testing.assert_close(attend(query, key, value, scale=4.0).double(), expected, rtol=1e-2, atol=1e-2)
    query[0, 0, 3, 5] = float("nan")
    assert attend(query, key, value)[0, 0].isnan().any(-1).tolist() == [row == 3 for row in range(10)]


def test_no_queries_and_no_keys():
    query, key, value = inputs(1, 2, 2, 3, 0, 8)
    assert not attend(query, key, value).any()
    assert attend(query[:, :, :0], key, value).shape == (1, 2, 0, 8)


def test_wrong_arguments_are_refused():
    query, key, value = inputs(1, 4, 2, 3, 5, 8)
    for arguments in [
        (query[:, :3], key, value),
        (query[..., :7], key, value),
        (query, key, value[:, :, :4]),
        (query.double(), key.double(), value.double()),
        (query, key, value, torch.ones(2, 5, dtype=torch.bool)),
        (query, key, value, torch.ones(3, 5, dtype=torch.float64)),
    ]:
        with pytest.raises(RuntimeError):
            attend(*arguments)


def test_kernel_is_chosen_where_faster():
    query, key, _ = inputs(1, 4, 2, 8, 5, 8)
    features = CpuFeatures(isa="AVX512", has_bf16_dot=False)
    assert is_faster(features, query, key, None) and is_faster(features, query, key, torch.ones(5, dtype=torch.bool))
    assert not is_faster(CpuFeatures(isa="DEFAULT", has_bf16_dot=False), query, key, None)
    assert not is_faster(features, query[:, :, :1], key, None)
    assert not is_faster(features, query.bfloat16(), key.bfloat16(), None)
    assert not is_faster(features, query, key, torch.ones(5, dtype=torch.float64))


def test_inductor_calls_kernel_directly(tmp_path):
    """Nothing is copied, and it is not called through torch's dispatcher."""

    def layer(joined, keep):
        query, key, value = joined.view(2, 40, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, keep[:, None, None, :].expand(2, 1, 40, 40))
        return mixed.transpose(1, 2).reshape(2, 40, 32)

    joined, keep = torch.randn(2, 40, 96), torch.arange(40).expand(2, 40) < torch.tensor([[40], [13]])
    body = body_of(layer, spec(2, 40, 96), spec(2, 40, dtype="bool"))
    code = generate(body_to_dict(body), "inductor")
    assert "aoti_torch_cpu_attention(" in code and "cpp_fused" not in code and "dispatcher" not in code
    attention.KERNEL.load(probe_cpu().isa)
    (function,) = compiled([body], tmp_path)
    # The bits may differ: the kernel of another vector extension may have been loaded first.
    torch.testing.assert_close(function([joined, keep])[0], layer(joined, keep))
