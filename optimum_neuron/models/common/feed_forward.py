"""Feed-forward blocks.

Shape legend: B batch, T tokens, D hidden, F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig
from .linear import make_linear


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
}
"""Functions by the names that transformers' configurations have for them."""


class GatedMLP(nn.Module):
    """Feed-forward with a gate; gate and up projection are one weight (Shazeer 2020, eq. 6)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        width, bias = config.intermediate_size, config.has_mlp_bias
        self.gate_up = make_linear(config, config.hidden_size, 2 * width, bias=bias)
        self.down = make_linear(config, width, config.hidden_size, bias=bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x_BTD).float().chunk(2, -1)
        return self.down((self.activation(gate) * up).to(x_BTD.dtype))


class PlainMLP(nn.Module):
    """Feed-forward of two projections with an activation between them (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        width, bias = config.intermediate_size, config.has_mlp_bias
        self.up = make_linear(config, config.hidden_size, width, bias=bias)
        self.down = make_linear(config, width, config.hidden_size, bias=bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x_BTD).float()).to(x_BTD.dtype))


def make_feed_forward(config: DecoderConfig, layer: int) -> nn.Module:
    """Return the feed-forward of a layer, the same for all."""
    return GatedMLP(config) if config.is_gated else PlainMLP(config)
