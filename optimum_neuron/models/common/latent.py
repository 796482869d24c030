"""Multi-head latent attention with a cache of the latent and of one rotary key for all heads.

A prompt expands the latents of its own tokens to the keys and values of each head. Later tokens do not expand the
cache: the projection to keys is absorbed into the query, and that to values comes after the mixture, so that a step
reads only latents.

Source: DeepSeek-V2, section 2.1 (equations 9 to 19).

Shape legend: B batch, T new tokens, S cache slots, D hidden, N heads, R rank of the latent, C width of a head without
positions, P width of the rotary part, V width of a value head.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

from .attention import AttentionView
from .config import Norm
from .layers import RMSNorm, rotate
from .states import LayerState, key_value_state


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentConfig:
    """Sizes of latent attention."""

    query_rank: int | None
    """Rank of the query's latent; None for a projection in one step."""
    rank: int
    """Rank of the latent of keys and values, which is cached."""
    plain_dim: int
    """Width of a query or key head without positions."""
    rotary_dim: int
    """Width of a query head with rotary positions, and of the key that all heads share."""
    value_dim: int
    """Width of a value head."""
    scale: float
    """Factor on the scores."""
    norm: Norm
    bias: bool = False
    """Bias on the projections to latents and on the output."""


class LatentAttention(nn.Module):
    """Attention whose keys and values are projections of a latent, written in place into the cache."""

    without_adapters = ("kv_up",)
    """Decode steps multiply queries by this weight, so that a row cannot add its own matrices to results."""

    def __init__(self, hidden_size: int, num_heads: int, config: LatentConfig) -> None:
        super().__init__()
        self.config = config
        self.heads = (num_heads, num_heads, num_heads)
        query_size = num_heads * (config.plain_dim + config.rotary_dim)
        if config.query_rank is None:
            self.q = nn.Linear(hidden_size, query_size, bias=False)
        else:
            self.q_down = nn.Linear(hidden_size, config.query_rank, bias=config.bias)
            self.q_norm = RMSNorm(config.query_rank, config.norm)
            self.q_up = nn.Linear(config.query_rank, query_size, bias=False)
        self.kv_down = nn.Linear(hidden_size, config.rank + config.rotary_dim, bias=config.bias)
        self.kv_norm = RMSNorm(config.rank, config.norm)
        self.kv_up = nn.Linear(config.rank, num_heads * (config.plain_dim + config.value_dim), bias=False)
        self.out = nn.Linear(num_heads * config.value_dim, hidden_size, bias=config.bias)

    @property
    def state(self) -> LayerState:
        """What the layer caches for each token: every core has the latent whole."""
        return key_value_state(1, self.config.rank, self.config.rotary_dim)

    def forward(self, x_BTD, view: AttentionView, *cache):  # type: ignore[no-untyped-def]
        """Write latents and rotary keys into the cache at their positions, and attend."""
        config = self.config
        query = self.q(x_BTD) if config.query_rank is None else self.q_up(self.q_norm(self.q_down(x_BTD)))
        query_BNTH = query.unflatten(-1, (self.heads[0], -1)).transpose(1, 2)
        plain_BNTC, query_BNTP = query_BNTH.split((config.plain_dim, config.rotary_dim), -1)
        latent_BTR, key_BTP = self.kv_down(x_BTD).split((config.rank, config.rotary_dim), -1)
        latent_B1TR = self.kv_norm(latent_BTR)[:, None]
        assert view.angles is not None, "latent attention has rotary positions"
        query_BNTP, key_B1TP = rotate(query_BNTP, view.angles), rotate(key_BTP[:, None], view.angles)
        view.write(cache, latent_B1TR, key_B1TP)
        if view.num_slots is None:
            mixed_BNTV = self._expanded(plain_BNTC, query_BNTP, latent_B1TR, key_B1TP, view)
        else:
            latent_B1SR, rotary_B1SP = view.read(cache, key_B1TP.dtype)
            mixed_BNTV = self._absorbed(plain_BNTC, query_BNTP, latent_B1SR.transpose(-1, -2), rotary_B1SP, view)
        return self.out(mixed_BNTV.transpose(1, 2).flatten(2))

    def _expanded(self, plain_BNTC, query_BNTP, latent_B1TR, key_B1TP, view):  # type: ignore[no-untyped-def]
        """Attend among the new tokens, with keys and values of each head."""
        config = self.config
        up_BNTH = self.kv_up(latent_B1TR[:, 0]).unflatten(-1, (self.heads[0], -1)).transpose(1, 2)
        key_BNTC, value_BNTV = up_BNTH.split((config.plain_dim, config.value_dim), -1)
        key = torch.cat((key_BNTC, key_B1TP.expand(-1, self.heads[0], -1, -1)), -1)
        query = torch.cat((plain_BNTC, query_BNTP), -1)
        return F.scaled_dot_product_attention(
            query, key, value_BNTV, attn_mask=view.mask, is_causal=view.mask is None, scale=config.scale
        )

    def _absorbed(self, plain_BNTC, query_BNTP, latent_B1RS, rotary_B1SP, view):  # type: ignore[no-untyped-def]
        """Attend to the cache with queries in the space of latents."""
        config, dtype = self.config, plain_BNTC.dtype
        up_NHR = self.kv_up.weight.unflatten(0, (self.heads[0], -1))
        key_NCR, value_NVR = up_NHR.split((config.plain_dim, config.value_dim), 1)
        query_BNTR = torch.matmul(plain_BNTC, key_NCR)
        scores_BNTS = torch.matmul(query_BNTR, latent_B1RS) + torch.matmul(query_BNTP, rotary_B1SP.transpose(-1, -2))
        scores_BNTS = (scores_BNTS.float() * config.scale).masked_fill(~view.mask, float("-inf"))
        mixed_BNTR = torch.matmul(scores_BNTS.softmax(-1).to(dtype), latent_B1RS.transpose(-1, -2))
        return torch.matmul(mixed_BNTR, value_NVR.transpose(-1, -2))
