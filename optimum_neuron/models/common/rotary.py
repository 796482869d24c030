"""Rotary positions: cosines and sines of a call, and the rotation of heads.

Shape legend: B batch, N heads, T tokens, H head width, R rotated width.
"""

from __future__ import annotations

import dataclasses

import torch

from .config import Rotary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Angles:
    """Cosine and sine of each token's rotation."""

    cos: torch.Tensor
    """[B, 1, T, R]."""
    sin: torch.Tensor
    """[B, 1, T, R], negated for the first channel of each pair."""
    is_interleaved: bool
    """See `Rotary`."""


def rotary_angles(positions: torch.Tensor, inv_freq: torch.Tensor, rotary: Rotary) -> Angles:
    """Return what rotates heads at these positions: [B, T], or one for each frequency [B, T, R / 2]."""
    positions = positions[..., None] if positions.ndim == 2 else positions
    angles = positions[:, None].float() * inv_freq
    half_cos, half_sin = angles.cos() * rotary.scale, angles.sin() * rotary.scale
    if rotary.is_interleaved:
        cos = torch.stack((half_cos, half_cos), -1).flatten(-2)
        sin = torch.stack((-half_sin, half_sin), -1).flatten(-2)
    else:
        cos, sin = torch.cat((half_cos, half_cos), -1), torch.cat((-half_sin, half_sin), -1)
    return Angles(cos=cos, sin=sin, is_interleaved=rotary.is_interleaved)


def rotate(x_BNTH: torch.Tensor, angles: Angles) -> torch.Tensor:
    """Rotate pairs of channels by their position's angle (Su et al. 2021, sec. 3.4.2), in float32.

    Channels beyond the rotated width stay. The two of a pair are swapped by a flip, which fuses into one pass; joining
    them from two pieces would take four.
    """
    width = angles.cos.shape[-1]
    if width < x_BNTH.shape[-1]:
        return torch.cat((rotate(x_BNTH[..., :width], angles), x_BNTH[..., width:]), -1)
    x = x_BNTH.float()
    if angles.is_interleaved:
        swapped = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        swapped = x.unflatten(-1, (2, -1)).flip(-2).flatten(-2)
    return (x * angles.cos + swapped * angles.sin).to(x_BNTH.dtype)
