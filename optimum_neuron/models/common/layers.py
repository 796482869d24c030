"""Norm, rotary embedding, attention with a static cache, and the gated feed-forward.

The residual stream is float32; projections take operands in the weights' dtype and their results join the
stream in float32, as TensorE accumulates. Keys and values are cached in the weights' dtype.

Shape legend: B batch, T new tokens, S cache slots, D hidden, N query heads, K key heads, H head width, F
feed-forward width.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig


class RMSNorm(nn.Module):
    """Root-mean-square norm in float32; returns the weight's dtype (Zhang and Sennrich 2019, eq. 4)."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        x = x_BTD.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * self.weight.float()).to(self.weight.dtype)


def rotate(x_BNTH: torch.Tensor, cos_B1TH: torch.Tensor, sin_B1TH: torch.Tensor) -> torch.Tensor:
    """Rotate pairs (i, i + H/2) by their position's angle (Su et al. 2021, sec. 3.4.2), in float32.

    `sin_B1TH` is negated in its first half. The halves are swapped by a flip, which fuses into one pass; joining
    them from two pieces would take four.
    """
    x = x_BNTH.float()
    swapped = x.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return (x * cos_B1TH + swapped * sin_B1TH).to(x_BNTH.dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionView:
    """What all layers share about the tokens of one call."""

    positions_BT: torch.Tensor
    """Position of each token, which is its cache slot."""
    cos: torch.Tensor
    """Cosine of the rotary angles, [B, 1, T, H]."""
    sin: torch.Tensor
    """Sine of the rotary angles, negated in the first half, [B, 1, T, H]."""
    mask: torch.Tensor | None
    """Which keys each query sees, boolean [B, 1, T, keys]; None: plain causal over the new tokens."""
    num_slots: int | None
    """Attend to this many slots of the cache; None: to the new tokens only."""


def write_slots(
    key_cache_BKHS: torch.Tensor,
    value_cache_BKSH: torch.Tensor,
    positions_BT: torch.Tensor,
    key_BKTH: torch.Tensor,
    value_BKTH: torch.Tensor,
) -> None:
    """Write new keys and values in place at the slots that equal their positions.

    An indexed assignment, because Inductor keeps it in place; a scatter would copy the whole cache.
    """
    rows = torch.arange(positions_BT.shape[0])[:, None]
    key_cache_BKHS[rows, :, :, positions_BT] = key_BKTH.transpose(1, 2).to(key_cache_BKHS.dtype)
    value_cache_BKSH[rows, :, positions_BT] = value_BKTH.transpose(1, 2).to(value_cache_BKSH.dtype)


def first_slots(
    key_cache_BKHS: torch.Tensor, value_cache_BKSH: torch.Tensor, num_slots: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [B, K, num_slots, H] of the first slots, as views."""
    return key_cache_BKHS[..., :num_slots].transpose(2, 3), value_cache_BKSH[:, :, :num_slots]


class Attention(nn.Module):
    """Grouped-query attention with fused query, key and value projection and a cache written in place."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.head_dim = config.head_dim
        width = config.head_dim * config.num_heads
        self.qkv = nn.Linear(config.hidden_size, sum(self.heads) * config.head_dim, bias=config.attention_bias)
        self.out = nn.Linear(width, config.hidden_size, bias=config.output_bias)

    def forward(self, x_BTD, view: AttentionView, key_cache_BKHS, value_cache_BKSH):  # type: ignore[no-untyped-def]
        """Write the new keys and values into the cache at their positions, and attend.

        Keys are cached with slots innermost: one query then streams them without a horizontal sum for each key.
        """
        batch, tokens, _ = x_BTD.shape
        qkv = self.qkv(x_BTD).view(batch, tokens, sum(self.heads), self.head_dim).transpose(1, 2)
        query, key, value = qkv.split(self.heads, 1)
        query, key = rotate(query, view.cos, view.sin), rotate(key, view.cos, view.sin)
        write_slots(key_cache_BKHS, value_cache_BKSH, view.positions_BT, key, value)
        if view.num_slots is not None:
            key, value = first_slots(key_cache_BKHS, value_cache_BKSH, view.num_slots)
        mixed = F.scaled_dot_product_attention(
            query, key, value, attn_mask=view.mask, is_causal=view.mask is None, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))


class GatedMLP(nn.Module):
    """SwiGLU feed-forward with gate and up projection in one weight (Shazeer 2020, eq. 6)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x_BTD).float().chunk(2, -1)
        return self.down((F.silu(gate) * up).to(x_BTD.dtype))
