"""Flash attention as an operator: equal to torch's, with its gradients, for groups of heads and both dtypes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from optimum_neuron.nki.kernels import attention, refusal


@pytest.mark.parametrize(
    ("dtype", "num_tokens", "tolerance"), [(torch.float32, 640, 1e-5), (torch.bfloat16, 256, 0.01)]
)
def test_attention_and_its_gradients(dtype, num_tokens, tolerance):
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(2, heads, num_tokens, 16, generator=draw).to(dtype) for heads in (4, 2, 2)]
    exact = [x.float().requires_grad_() for x in states]
    own = [x.clone().requires_grad_() for x in states]
    result, expected = attention(*own), F.scaled_dot_product_attention(*exact, is_causal=True, enable_gqa=True)
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), expected, rtol=tolerance, atol=tolerance)
    gradient = torch.randn(expected.shape, generator=draw)
    gradients = torch.autograd.grad(result, own, gradient.to(dtype))
    for one, other in zip(gradients, torch.autograd.grad(expected, exact, gradient), strict=True):
        assert one.dtype == dtype and (one.float() - other).norm() < tolerance * other.norm()


def test_scale_is_a_parameter():
    query, key, value = torch.randn(3, 1, 2, 128, 8, generator=torch.Generator().manual_seed(1))
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.1)
    torch.testing.assert_close(attention(query, key, value, scale=0.1), expected)


def test_sizes_that_do_not_fit():
    assert refusal(num_tokens=256, head_dim=128) is None
    assert "129" in refusal(num_tokens=256, head_dim=129)
    assert "100" in refusal(num_tokens=100, head_dim=64)
