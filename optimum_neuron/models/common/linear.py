"""Projections, and bounds of their results.

Shape legend: I inputs, O outputs.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig


class TransposedLinear(nn.Module):
    """A linear layer whose weight has its inputs in dimension 0, as checkpoints of GPT-2 store it."""

    def __init__(self, num_inputs: int, num_outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs))
        self.bias = nn.Parameter(torch.empty(num_outputs)) if bias else None

    def forward(self, x_I: torch.Tensor) -> torch.Tensor:
        return F.linear(x_I, self.weight.t(), self.bias)


def make_linear(config: DecoderConfig, num_inputs: int, num_outputs: int, *, bias: bool) -> nn.Module:
    """Return a projection whose weight has the checkpoint's layout."""
    return (TransposedLinear if config.has_transposed_weights else nn.Linear)(num_inputs, num_outputs, bias=bias)


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Bound numbers smoothly (Gemma 2 report, 2024, section 2); None leaves them."""
    return x if cap is None else (x / cap).tanh() * cap
