"""The gated delta rule, by which linear attention writes a value under a key into a matrix and forgets others.

Tokens are computed in chunks. Within one, the tokens' corrections of each other are a triangular system of equations;
from one to the next only the state goes on. A token with a decay of 1 and a learning rate of 0 changes no state.

Sources: Yang et al. 2024a, DeltaNet, section 3.2; Yang et al. 2024b, Gated DeltaNet, section 3.3; Kimi Linear (2025),
section 3, for a decay of each channel.

Shape legend: B batch, T tokens, N heads, G heads of queries and keys, C chunks, L tokens of a chunk, K width of a key,
V width of a value, W decays of a head: 1, or one for each channel of the key.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

CHUNK_LENGTH = 32
"""Tokens of a chunk: more make the system of equations dearer than what it saves."""


def gated_delta_rule(
    query_BTGK: torch.Tensor,
    key_BTGK: torch.Tensor,
    value_BTNV: torch.Tensor,
    log_decay_BTNW: torch.Tensor,
    rate_BTN: torch.Tensor,
    state_BNKV: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results [B, T, N, V] and the state after the last token, both in float32.

    Args:
        query_BTGK: queries, which are normalized here; several neighboring heads share one.
        log_decay_BTNW: logarithm of what a token leaves of the state.
        rate_BTN: share of a value that is written, from 0 to 1.
        state_BNKV: the state before the first token; None for zeros.
    """
    num_tokens, num_heads, width = value_BTNV.shape[1], value_BTNV.shape[2], key_BTGK.shape[3]
    length = min(CHUNK_LENGTH, num_tokens)

    def chunks(x: torch.Tensor) -> torch.Tensor:
        x = x.float().repeat_interleave(num_heads // x.shape[2], 2).transpose(1, 2)
        return F.pad(x, (0, 0, 0, -num_tokens % length)).unflatten(2, (-1, length))

    query, key, value = chunks(_unit(query_BTGK) * width**-0.5), chunks(_unit(key_BTGK)), chunks(value_BTNV)
    decay_BNCLW, rate_BNCL1 = chunks(log_decay_BTNW).cumsum(-2), chunks(rate_BTN[..., None])
    is_before = torch.ones(length, length, dtype=torch.bool).tril(-1)
    system = torch.where(is_before, _scores(key * rate_BNCL1, key, decay_BNCLW), 0.0)
    inverse = inverse_of_unit_lower(system)
    written, read = inverse @ (value * rate_BNCL1), inverse @ (key * rate_BNCL1 * decay_BNCLW.exp())
    scores = _scores(query, key, decay_BNCLW)
    last_BNC1W = decay_BNCLW[..., -1:, :]
    query, key = query * decay_BNCLW.exp(), key * (last_BNC1W - decay_BNCLW).exp()
    left = last_BNC1W.exp().transpose(-1, -2)
    state = value.new_zeros(*value.shape[:2], width, value.shape[-1]) if state_BNKV is None else state_BNKV.float()
    results = []
    for chunk in range(value.shape[2]):
        new = written[:, :, chunk] - read[:, :, chunk] @ state
        results.append(query[:, :, chunk] @ state + scores[:, :, chunk] @ new)
        state = state * left[:, :, chunk] + key[:, :, chunk].transpose(-1, -2) @ new
    return torch.cat(results, 2)[:, :, :num_tokens].transpose(1, 2), state


def inverse_of_unit_lower(lower: torch.Tensor) -> torch.Tensor:
    """Return the inverse of I + `lower`, which has zeros on the diagonal and above, [..., L, L].

    Each round joins neighboring blocks of the diagonal, whose inverses are known, to one of twice the size.
    """
    length, size = lower.shape[-1], 1
    inverse, place = torch.eye(length).expand_as(lower), torch.arange(length)
    while size < length:
        block = place // size
        is_corner = (block[:, None] == block + 1) & (block[:, None] % 2 == 1)
        inverse = inverse - inverse @ torch.where(is_corner, lower, 0.0) @ inverse
        size *= 2
    return inverse


def _unit(x: torch.Tensor) -> torch.Tensor:
    x = x.float()
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def _scores(left: torch.Tensor, right: torch.Tensor, decay_BNCLW: torch.Tensor) -> torch.Tensor:
    """Products of each token with those up to itself, decayed from one to the other: [B, N, C, L, L]."""
    is_seen = torch.ones(left.shape[-2], left.shape[-2], dtype=torch.bool).tril()[..., None]
    between = decay_BNCLW[..., :, None, :] - decay_BNCLW[..., None, :, :]
    decay_BNCLLW = torch.where(is_seen, between, float("-inf")).exp()
    if decay_BNCLLW.shape[-1] == 1:
        return left @ right.transpose(-1, -2) * decay_BNCLLW[..., 0]
    return (left[..., :, None, :] * right[..., None, :, :] * decay_BNCLLW).sum(-1)
