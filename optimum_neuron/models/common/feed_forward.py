"""Feed-forward blocks.

Shape legend: B batch, T tokens, D hidden, F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .config import DecoderConfig


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
        self.gate_up = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.has_mlp_bias)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.has_mlp_bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x_BTD).float().chunk(2, -1)
        return self.down((self.activation(gate) * up).to(x_BTD.dtype))
