"""Norms of the residual stream and of heads, in float32.

Shape legend: B batch, T tokens, D the width that is normalized.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .config import Norm


class RMSNorm(nn.Module):
    """Root-mean-square norm in float32; returns the weight's dtype (Zhang and Sennrich 2019, eq. 4)."""

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps, self.adds_one = norm.eps, norm.adds_one

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        x = x_BTD.float()
        x = x * torch.rsqrt(self.mean_square(x) + self.eps)
        weight = self.weight.float() + 1.0 if self.adds_one else self.weight.float()
        return (x * weight).to(self.weight.dtype)

    def mean_square(self, x: torch.Tensor) -> torch.Tensor:
        """Of the last dimension; tensor parallelism replaces it where several cores have parts of that."""
        return x.pow(2).mean(-1, keepdim=True)


class LayerNorm(nn.LayerNorm):
    """Norm by mean and variance in float32; returns the weight's dtype (Ba et al. 2016, eq. 4)."""

    def __init__(self, size: int, norm: Norm) -> None:
        super().__init__(size, eps=norm.eps, bias=norm.has_bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.float()
        x = F.layer_norm(x_BTD.float(), self.normalized_shape, self.weight.float(), bias, self.eps)
        return x.to(self.weight.dtype)


def make_norm(size: int, norm: Norm) -> nn.Module:
    """Return a norm of a width."""
    return RMSNorm(size, norm) if norm.kind == "rms" else LayerNorm(size, norm)
