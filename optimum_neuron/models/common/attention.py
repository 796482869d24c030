"""Attention with a static cache that is written in place.

Projections take operands in the weights' dtype and their results join the float32 residual stream, as TensorE
accumulates. Keys and values are cached in the weights' dtype.

Shape legend: B batch, T new tokens, S cache slots, D hidden, N query heads, K key heads, H head width.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig, LayerKind, StateShape
from .norms import make_norm
from .rotary import Angles, rotate


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionView:
    """What all layers of a kind share about the tokens of one call."""

    positions_BT: torch.Tensor
    """Position of each token, which is its cache slot."""
    angles: Angles | None
    """Rotation of queries and keys."""
    mask: torch.Tensor | None
    """Which keys each query sees, boolean [B, 1, T, keys]; None: plain causal over the new tokens."""
    num_slots: int | None
    """Attend to this many slots of the cache; None: to the new tokens only."""


def visible_slots(
    positions_BT: torch.Tensor, num_keys: int, window: int | None, chunk: int | None = None
) -> torch.Tensor:
    """Which slots each query sees: boolean [B, 1, T, num_keys].

    Only the last `window` slots, or those of the query's own `chunk`, if these are numbers.
    """
    slots, queries = torch.arange(num_keys), positions_BT[:, None, :, None]
    mask = slots <= queries
    if chunk:
        mask = mask & (slots // chunk == queries // chunk)
    return mask & (slots > queries - window) if window else mask


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

    def __init__(self, config: DecoderConfig, kind: LayerKind) -> None:
        super().__init__()
        # Of one core: tensor parallelism changes them.
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.config, self.head_dim, self.scale = config, config.head_dim, kind.scale
        width = config.head_dim * config.num_heads
        self.qkv = nn.Linear(config.hidden_size, sum(self.heads) * config.head_dim, bias=config.has_qkv_bias)
        self.out = nn.Linear(width, config.hidden_size, bias=config.has_output_bias)
        if config.head_norm is not None:
            self.query_norm = make_norm(config.head_dim, config.head_norm)
            self.key_norm = make_norm(config.head_dim, config.head_norm)

    @property
    def state_shape(self) -> StateShape:
        """What the layer caches for each token, on one core."""
        return StateShape(self.heads[1], self.head_dim, self.head_dim)

    def forward(self, x_BTD, view: AttentionView, key_cache_BKHS, value_cache_BKSH):  # type: ignore[no-untyped-def]
        """Write the new keys and values into the cache at their positions, and attend.

        Keys are cached with slots innermost: one query then streams them without a horizontal sum for each key.
        """
        batch, tokens, _ = x_BTD.shape
        query, key, value = self._project(x_BTD)
        query, key = self._place(query, key, view)
        write_slots(key_cache_BKHS, value_cache_BKSH, view.positions_BT, key, value)
        if view.num_slots is not None:
            key, value = first_slots(key_cache_BKHS, value_cache_BKSH, view.num_slots)
        mixed = self._attend(query, key, value, view.mask)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def _project(self, x_BTD: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries [B, N, T, H], keys and values [B, K, T, H]."""
        batch, tokens, _ = x_BTD.shape
        qkv = self.qkv(x_BTD).view(batch, tokens, sum(self.heads), self.head_dim).transpose(1, 2)
        query, key, value = qkv.split(self.heads, 1)
        if self.config.head_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value

    def _place(self, query: torch.Tensor, key: torch.Tensor, view: AttentionView) -> tuple[torch.Tensor, torch.Tensor]:
        """Let queries and keys know their positions."""
        if view.angles is None:
            return query, key
        return rotate(query, view.angles), rotate(key, view.angles)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Mix values [B, N, T, H]."""
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=True
        )
