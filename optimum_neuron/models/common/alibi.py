"""Linear biases of attention scores in place of positions (Press et al. 2021, section 3).

Shape legend: B batch, N query heads, T new tokens, S keys.
"""

from __future__ import annotations

import torch
from torch import nn


class Alibi(nn.Module):
    """A bias for each key that grows with its distance, by a slope for each head."""

    def __init__(self, slopes: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(slopes, device="cpu"), persistent=False)

    def own_slopes(self) -> torch.Tensor:
        """Slopes of the heads of this core; tensor parallelism replaces it."""
        return self.slopes

    def forward(self, mask_B1TS: torch.Tensor, positions_BT: torch.Tensor) -> torch.Tensor:
        """Return what is added to the scores, [B, N, T, S]."""
        distance = (torch.arange(mask_B1TS.shape[-1]) - positions_BT[:, None, :, None]).float()
        bias = self.own_slopes()[:, None, None] * distance
        return bias.masked_fill(~mask_B1TS, float("-inf"))


def slopes_by_halves(num_heads: int) -> tuple[float, ...]:
    """Slopes of Bloom: those of a power of two, and every second one of the next power for further heads."""
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    further = [2.0 ** (-4.0 * head / power) for head in range(1, 2 * power + 1, 2)]
    return tuple((slopes + further)[:num_heads])


def slopes_by_order(num_heads: int) -> tuple[float, ...]:
    """Slopes of MPT: those of the next power of two; where that has more heads, every second one comes first."""
    power = 1 << (num_heads - 1).bit_length()
    slopes = [2.0 ** (-8.0 * head / power) for head in range(1, power + 1)]
    return tuple(slopes if power == num_heads else (slopes[1::2] + slopes[::2])[:num_heads])
