"""Linear attention by the gated delta rule: a state of fixed size in place of keys and values of every token.

Source: Yang et al. 2024, Gated DeltaNet, section 3.

Shape legend: B batch, T new tokens, D hidden, C channels of the convolution, W inputs that it keeps, G key heads, R
value heads of a key head, N value heads, K width of a key, V width of a value.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import nn
from torch.nn import functional as F

from .attention import AttentionView
from .config import Norm
from .convolution import CausalConvolution, real_tokens
from .delta_rule import gated_delta_rule
from .layers import RMSNorm
from .state_rows import keep_state, state_of_rows
from .states import LayerState, recurrent_state


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeltaConfig:
    """Sizes of linear attention."""

    num_key_heads: int
    """Heads of queries and keys; divides num_value_heads."""
    num_value_heads: int
    """Heads of values, each with a state."""
    key_dim: int
    """Width of a query or key head."""
    value_dim: int
    """Width of a value head."""
    num_taps: int
    """Tokens that the convolution sees, the newest included."""
    norm: Norm
    """Norm of each value head's result."""


class GatedDeltaNet(nn.Module):
    """Linear attention with a convolution before it and a gate behind it."""

    def __init__(self, hidden_size: int, config: DeltaConfig) -> None:
        super().__init__()
        # Of one core, as of attention: heads with results of their own, and those that they share.
        self.num_heads, self.num_kv_heads = config.num_value_heads, config.num_key_heads
        self.config = config
        key_size, value_size = config.num_key_heads * config.key_dim, config.num_value_heads * config.value_dim
        num_outputs = 2 * (key_size + value_size + config.num_value_heads)
        # By key head: query, key, its values, their gates; then again by key head: rates and time steps of its values.
        self.in_proj = nn.Linear(hidden_size, num_outputs, bias=False)
        self.conv = CausalConvolution(2 * key_size + value_size, config.num_taps)
        self.log_speed = nn.Parameter(torch.zeros(config.num_value_heads))
        self.step_bias = nn.Parameter(torch.zeros(config.num_value_heads))
        self.norm = RMSNorm(config.value_dim, config.norm)
        self.out_proj = nn.Linear(value_size, hidden_size, bias=False)

    @property
    def state(self) -> LayerState:
        """What the layer keeps between calls, on one core."""
        return self.conv.state + recurrent_state((self.num_heads, self.config.key_dim, self.config.value_dim))

    def forward(self, x_BTD, view: AttentionView, window_BCW, state_BNKV):  # type: ignore[no-untyped-def]
        """Update window and state with the real tokens, and return what joins the residual stream."""
        query, key, value, gate, rate, step = self._project(x_BTD, view, window_BCW)
        decay_BTN = -self.log_speed.float().exp() * F.softplus(step.float() + self.step_bias.float())
        real_BT1 = real_tokens(view.num_new_B, x_BTD.shape[1])[..., None]
        decay_BTN, rate_BTN = (torch.where(real_BT1, x, 0.0) for x in (decay_BTN, rate.float().sigmoid()))
        before = None if view.num_slots is None else state_of_rows(state_BNKV, view.rows_B)
        mixed_BTNV, after = gated_delta_rule(query, key, value, decay_BTN[..., None], rate_BTN, before)
        keep_state(state_BNKV, after, view.rows_B)
        mixed_BTNV = self.norm(mixed_BTNV) * F.silu(gate.float())
        return self.out_proj(mixed_BTNV.to(x_BTD.dtype).flatten(2))

    def _project(self, x_BTD: torch.Tensor, view: AttentionView, window_BCW: torch.Tensor) -> list[torch.Tensor]:
        """Queries and keys [B, T, G, K], values and gates [B, T, N, V], rates and time steps [B, T, N]."""
        num_groups, key_dim = self.num_kv_heads, self.config.key_dim
        value_dim = self.config.value_dim * self.num_heads // num_groups
        projected, num_scalars = self.in_proj(x_BTD), 2 * self.num_heads
        heads, scalars = projected.split((projected.shape[-1] - num_scalars, num_scalars), -1)
        *qkv, gate = heads.unflatten(-1, (num_groups, -1)).split((key_dim, key_dim, value_dim, value_dim), -1)
        rate, step = scalars.unflatten(-1, (num_groups, 2, -1)).unbind(-2)
        mixed_BTC = F.silu(self.conv(torch.cat([part.flatten(2) for part in qkv], -1), view, window_BCW))
        parts = mixed_BTC.split([num_groups * width for width in (key_dim, key_dim, value_dim)], -1)
        query, key = (part.unflatten(-1, (num_groups, -1)) for part in parts[:2])
        value, gate = (part.unflatten(-1, (self.num_heads, -1)) for part in (parts[2], gate.flatten(2)))
        return [query, key, value, gate, rate.flatten(2), step.flatten(2)]
