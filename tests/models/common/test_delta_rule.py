"""The gated delta rule in chunks is that of a loop over the tokens."""

import pytest
import torch

from optimum_neuron.models.common import gated_delta_rule
from optimum_neuron.models.common.delta_rule import inverse_of_unit_lower

NUM_KEYS, NUM_HEADS, WIDTH, VALUE_WIDTH = 2, 4, 6, 5


def by_token(query, key, value, log_decay, rate, state):
    """Yang et al. 2024, eq. 10, one token after the other."""
    query, key = (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    query, key = (x.repeat_interleave(NUM_HEADS // NUM_KEYS, 2) for x in (query, key))
    results = []
    for token in range(value.shape[1]):
        state = state * log_decay[:, token, :, :, None].exp()
        old = torch.einsum("bnk,bnkv->bnv", key[:, token], state)
        new = (value[:, token] - old) * rate[:, token, :, None]
        state = state + torch.einsum("bnk,bnv->bnkv", key[:, token], new)
        results.append(torch.einsum("bnk,bnkv->bnv", query[:, token] * WIDTH**-0.5, state))
    return torch.stack(results, 1), state


@pytest.mark.parametrize("num_decays", [1, WIDTH], ids=["a decay for each head", "a decay for each channel"])
@pytest.mark.parametrize("num_tokens", [1, 31, 32, 70])
def test_chunks_are_those_of_a_loop(num_tokens, num_decays):
    torch.manual_seed(0)
    query, key = torch.randn(2, 2, num_tokens, NUM_KEYS, WIDTH)
    value, state = torch.randn(2, num_tokens, NUM_HEADS, VALUE_WIDTH), torch.randn(2, NUM_HEADS, WIDTH, VALUE_WIDTH)
    log_decay, rate = -torch.rand(2, num_tokens, NUM_HEADS, num_decays), torch.rand(2, num_tokens, NUM_HEADS)
    arguments = (query, key, value, log_decay, rate)
    torch.testing.assert_close(gated_delta_rule(*arguments, state), by_token(*arguments, state), atol=2e-6, rtol=1e-4)
    empty = by_token(*arguments, torch.zeros_like(state))
    torch.testing.assert_close(gated_delta_rule(*arguments, None), empty, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5, 32])
def test_an_inverse_is_as_exact_as_that_of_equal_keys_needs(size):
    # Equal keys without decay: powers of this matrix are binomial coefficients, and its inverse has only -1.
    lower = torch.ones(size, size).tril(-1)
    inverse = inverse_of_unit_lower(lower)
    assert torch.equal(inverse @ (lower + torch.eye(size)), torch.eye(size))
