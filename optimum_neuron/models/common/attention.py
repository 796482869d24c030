"""Attention with a static cache that is written in place.

Projections take operands in the weights' dtype and their results join the float32 residual stream, as TensorE
accumulates. Keys and values are cached in the weights' dtype, or in 8 bits (`cache_dtypes.py`).

Shape legend: B batch, T new tokens, S cache slots, D hidden, N query heads, K key heads, H head width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from .blocks import Blocks
from .cache_dtypes import SCALE_NAMES, chip_scales, to_read, to_store
from .config import DecoderConfig, LayerKind
from .layers import Angles, capped, make_linear, make_norm, rotate
from .states import LayerState, key_value_state

if TYPE_CHECKING:
    from .rings import Ring


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionView:
    """What all layers of a kind share about the tokens of one call."""

    positions_BT: torch.Tensor
    """Position of each token, which is its cache slot where `ring` is None."""
    angles: Angles | None
    """Rotation of queries and keys."""
    mask: torch.Tensor | None
    """Which keys each query sees, boolean [B, 1, T, keys], or what is added to the scores of each head; None: plain
    causal over the new tokens."""
    num_slots: int | None
    """Attend to this many slots of the cache; None: to the new tokens only, which begin a sequence."""
    num_new_B: torch.Tensor | None = None
    """Tokens of each row that are real, its first ones; None where every token has its own slot."""
    rows_B: torch.Tensor | None = None
    """Rows of the states without slots that the rows continue; None for all, in order."""
    ring: Ring | None = None
    """Where the tokens go in a layer that sees only the newest ones."""
    blocks: Blocks | None = None
    """Where they go in a cache that is divided into blocks."""

    def write(
        self,
        cache: Sequence[torch.Tensor],
        key_BKTH: torch.Tensor,
        value_BKTH: torch.Tensor,
        scales: Sequence[torch.Tensor] = (),
    ) -> None:
        """Write new keys and values into a layer's cache, in place: keys and values, and their scales if it has some.

        Scales are placed as keys and values of width 1 are. Fixed `scales` of a layer are not written.
        """
        if self.blocks is not None:
            key_BKTH, value_BKTH = self.blocks.without_padding(key_BKTH), self.blocks.without_padding(value_BKTH)
        new = to_store(cache[0].dtype, key_BKTH, value_BKTH, scales)
        for first in range(0, len(cache), 2):
            self._write_pair(*cache[first : first + 2], *new[first : first + 2])

    def read(
        self, cache: Sequence[torch.Tensor], dtype: torch.dtype, scales: Sequence[torch.Tensor] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cached keys and values [B, K, S, H] that the tokens attend to; those of 8 bits in `dtype`."""
        pairs = (self._read_pair(*cache[first : first + 2]) for first in range(0, len(cache), 2))
        return to_read([tensor for pair in pairs for tensor in pair] + [*scales], dtype)

    def _write_pair(
        self, key_cache: torch.Tensor, value_cache: torch.Tensor, key_BKTH: torch.Tensor, value_BKTH: torch.Tensor
    ) -> None:
        place = self.blocks or self.ring
        if place is None:
            write_slots(key_cache, value_cache, self.positions_BT, key_BKTH, value_BKTH)
        else:
            place.write(key_cache, value_cache, key_BKTH, value_BKTH)

    def _read_pair(self, key_cache: torch.Tensor, value_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.num_slots is not None, "tokens that begin a sequence attend to each other"
        if self.blocks is not None:
            return self.blocks.read(key_cache, value_cache)
        return first_slots(key_cache, value_cache, self.num_slots)


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


def capped_attention(
    query_BNTH: torch.Tensor,
    key_BKSH: torch.Tensor,
    value_BKSH: torch.Tensor,
    mask_B1TS: torch.Tensor,
    *,
    scale: float,
    cap: float,
) -> torch.Tensor:
    """Attention [B, N, T, H] whose scores are bounded, which `scaled_dot_product_attention` cannot."""
    query = query_BNTH.unflatten(1, (key_BKSH.shape[1], -1))
    scores = capped((query @ key_BKSH.unsqueeze(2).transpose(-1, -2)).float() * scale, cap)
    scores = scores.masked_fill(~mask_B1TS.unsqueeze(2), float("-inf"))
    return (scores.softmax(-1).to(value_BKSH.dtype) @ value_BKSH.unsqueeze(2)).flatten(1, 2)


class Attention(nn.Module):
    """Grouped-query attention with fused query, key and value projection and a cache written in place."""

    def __init__(self, config: DecoderConfig, kind: LayerKind) -> None:
        super().__init__()
        # Of one core: tensor parallelism changes them.
        self.heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.config, self.head_dim, self.scale = config, config.head_dim, kind.scale
        self.kernel: Callable[..., torch.Tensor] | None = None
        """What attends to the tokens of a prompt in place of torch's operator, if anything does."""
        width = config.head_dim * config.num_heads
        num_gates = config.num_heads if config.has_attention_gate else 0
        num_outputs = (sum(self.heads) + num_gates) * config.head_dim
        self.qkv = make_linear(config, config.hidden_size, num_outputs, bias=config.has_qkv_bias)
        self.out = make_linear(config, width, config.hidden_size, bias=config.has_output_bias)
        if config.head_norm is not None:
            widths = [config.head_dim * (n if config.head_norm_width == "all heads" else 1) for n in self.heads]
            self.query_norm = make_norm(widths[0], config.head_norm)
            self.key_norm = make_norm(widths[1], config.head_norm)

    @property
    def state(self) -> LayerState:
        """What the layer caches for each token, on one core."""
        return key_value_state(self.heads[1], self.head_dim, self.head_dim)

    @property
    def cache_scales(self) -> list[torch.Tensor]:
        """What divides keys and values in the cache, if the layer has scales of a checkpoint."""
        return chip_scales(*(getattr(self, name) for name in SCALE_NAMES if hasattr(self, name)))

    def take_scales(self) -> None:
        """Make room for scales of a checkpoint, as buffers: those stay in float32."""
        for name in SCALE_NAMES:
            self.register_buffer(name, torch.ones(1, device="cpu"))

    def forward(self, x_BTD, view: AttentionView, *cache):  # type: ignore[no-untyped-def]
        """Write the new keys and values into the cache at their slots, and attend.

        Keys [B, K, H, S] are cached with slots innermost: one query then streams them without a horizontal sum for each
        key.
        """
        batch, tokens, _ = x_BTD.shape
        query, key, value, *gates = self._project(x_BTD)
        query, key = self._place(query, key, view)
        view.write(cache, key, value, self.cache_scales)
        if view.num_slots is not None:
            key, value = view.read(cache, key.dtype, self.cache_scales)
        mixed = self._attend(query, key, value, view.mask)
        for gate in gates:
            mixed = (mixed * gate.float().sigmoid()).to(mixed.dtype)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def _place(self, query: torch.Tensor, key: torch.Tensor, view: AttentionView) -> tuple[torch.Tensor, torch.Tensor]:
        """Let queries and keys know their positions."""
        if view.angles is None:
            return query, key
        return rotate(query, view.angles), rotate(key, view.angles)

    def _attend(self, query, key, value, mask):  # type: ignore[no-untyped-def]
        if mask is None and self.kernel is not None:
            return self.kernel(query, key, value, self.scale)
        cap = self.config.score_cap
        if cap is not None:
            return capped_attention(query, key, value, mask, scale=self.scale or self.head_dim**-0.5, cap=cap)
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, scale=self.scale, enable_gqa=True
        )

    def _project(self, x_BTD: torch.Tensor) -> list[torch.Tensor]:
        """Queries [B, N, T, H], keys and values [B, K, T, H], and gates [B, N, T, H] if there are any."""
        batch, tokens, _ = x_BTD.shape
        qkv, limit = self.qkv(x_BTD), self.config.qkv_limit
        if limit is not None:
            qkv = qkv.clamp(-limit, limit)
        if self.config.head_norm is not None and self.config.head_norm_width == "all heads":
            query, key, value = qkv.split([n * self.head_dim for n in self.heads], -1)
            parts = (self.query_norm(query), self.key_norm(key), value)
            return [part.view(batch, tokens, -1, self.head_dim).transpose(1, 2) for part in parts]
        if self.config.qkv_order == "groups":
            groups = qkv.view(batch, tokens, self.heads[1], -1, self.head_dim)
            split = groups.split((self.heads[0] // self.heads[1], 1, 1), 3)
            query, key, value = (part.flatten(2, 3).transpose(1, 2) for part in split)
        else:
            qkv = qkv.view(batch, tokens, -1, self.head_dim).transpose(1, 2)
            query, key, value = qkv.split((qkv.shape[1] - 2 * self.heads[1], *self.heads[1:]), 1)
        gates = []
        if self.config.has_attention_gate:
            query, *gates = query.unflatten(1, (-1, 2)).unbind(2)
        if self.config.head_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        return [query, key, value, *gates]
