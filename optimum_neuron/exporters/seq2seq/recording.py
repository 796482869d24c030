"""Encoders of recordings that are padded at their end: each row gives what it gives alone.

Moonshine normalizes over the whole recording, so padding would change every frame, and it takes a frame for a real one
whose first sample is real, though its window reaches into the padding. Here the statistics leave padding out, and a
frame is real where its whole window is.

Shape legend: B rows, N samples, C channels, T frames after the first convolution.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from ..encoders.patches.base import replaced_forward
from .sources import Source


def valid_places(mask_BN: torch.Tensor, source: Source) -> torch.Tensor:
    """A mask of samples [B, N] of which every `source.stride`-th, which the encoder takes, tells a real frame."""
    states_B = (mask_BN.sum(1) - source.window) // source.stride + 1
    return (torch.arange(mask_BN.shape[1]) // source.stride < states_B[:, None]).to(mask_BN.dtype)


def known_length(encoder: Any, mask_BN: torch.Tensor) -> AbstractContextManager[None]:
    """The group norm behind the first convolution with the statistics of real frames only."""
    conv, norm = encoder.conv1, encoder.groupnorm
    assert norm.num_groups == 1, "one group, all channels"
    frames_B = (mask_BN.sum(1) - conv.kernel_size[0]) // conv.stride[0] + 1

    def forward(hidden_BCT: torch.Tensor) -> torch.Tensor:
        valid_B1T = (torch.arange(hidden_BCT.shape[2]) < frames_B[:, None])[:, None]
        count_B11 = (frames_B * hidden_BCT.shape[1])[:, None, None].float()
        wide_BCT = hidden_BCT.float()
        mean_B11 = (wide_BCT * valid_B1T).sum((1, 2), keepdim=True) / count_B11
        centered_BCT = wide_BCT - mean_B11
        variance_B11 = (centered_BCT.square() * valid_B1T).sum((1, 2), keepdim=True) / count_B11
        scaled_BCT = centered_BCT * torch.rsqrt(variance_B11 + norm.eps)
        return (scaled_BCT * norm.weight[:, None] + norm.bias[:, None]).to(hidden_BCT.dtype)

    return replaced_forward(norm, forward)
