"""Causal convolutions, each channel by itself, which keep their newest inputs between calls.

Padding is behind the real tokens of a row, so no real token sees it; what is kept must not see it either.

Source of `ShortConvolution`: LFM2 technical report (Liquid AI 2025), section 2.

Shape legend: B batch, T new tokens, D hidden, C channels, W inputs that are kept, one fewer than the kernel has taps.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .attention import AttentionView
from .state_rows import keep_state, state_of_rows
from .states import LayerState, convolution_state


def real_tokens(num_new_B: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Which of the new tokens are real, the first ones of each row: boolean [B, T]."""
    return torch.arange(num_tokens) < num_new_B[:, None]


def take_window(
    kept_RCW: torch.Tensor,
    new_BCT: torch.Tensor,
    num_new_B: torch.Tensor,
    *,
    starts_empty: bool,
    rows_B: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the kept inputs, or zeros, and the new ones behind them; keep in place the newest that are real.

    `rows_B` are the rows of the kept inputs that a call continues; None for all, in order.
    """
    kept_BCW = state_of_rows(kept_RCW, rows_B)
    before = torch.zeros_like(kept_BCW) if starts_empty else kept_BCW
    inputs = torch.cat((before, new_BCT.to(kept_BCW.dtype)), -1)
    index_BW = num_new_B[:, None] + torch.arange(kept_BCW.shape[2])
    keep_state(kept_RCW, inputs.gather(2, index_BW[:, None].expand(-1, kept_BCW.shape[1], -1)), rows_B)
    return inputs


class CausalConvolution(nn.Module):
    """A convolution of each channel over a token and those before it."""

    def __init__(self, num_channels: int, num_taps: int, *, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_channels, 1, num_taps))
        self.bias = nn.Parameter(torch.zeros(num_channels)) if bias else None

    @property
    def state(self) -> LayerState:
        """The inputs that it keeps, of the channels of one core."""
        num_channels, _, num_taps = self.weight.shape
        return convolution_state(num_channels, num_taps - 1)

    def forward(self, x_BTC: torch.Tensor, view: AttentionView, kept_BCW: torch.Tensor) -> torch.Tensor:
        assert view.num_new_B is not None, "a state without slots comes with the number of tokens"
        starts_empty = view.num_slots is None
        inputs = take_window(
            kept_BCW, x_BTC.transpose(1, 2), view.num_new_B, starts_empty=starts_empty, rows_B=view.rows_B
        )
        return F.conv1d(inputs, self.weight, self.bias, groups=self.weight.shape[0]).transpose(1, 2)


class ShortConvolution(nn.Module):
    """A convolution between two gates, in place of attention (LFM2)."""

    def __init__(self, hidden_size: int, num_taps: int, *, bias: bool) -> None:
        super().__init__()
        self.in_proj = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        self.conv = CausalConvolution(hidden_size, num_taps, bias=bias)
        self.out_proj = nn.Linear(hidden_size, hidden_size, bias=bias)

    @property
    def state(self) -> LayerState:
        """What the layer keeps between calls, on one core."""
        return self.conv.state

    def forward(self, x_BTD: torch.Tensor, view: AttentionView, kept_BCW: torch.Tensor) -> torch.Tensor:
        gate_BTC, result_gate_BTC, x_BTC = self.in_proj(x_BTD).chunk(3, -1)
        return self.out_proj(result_gate_BTC * self.conv(gate_BTC * x_BTC, view, kept_BCW))
