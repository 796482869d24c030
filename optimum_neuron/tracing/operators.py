"""Operators of sampling under the names that libraries call: `Argmax.apply`, `Softmax.apply`, `TopK.apply`.

>>> import torch
>>> from optimum_neuron.tracing.operators import Argmax
>>> Argmax.apply(torch.tensor([1.0, 3.0, 2.0]), 0)
tensor(1)
"""

from __future__ import annotations

import torch


class Argmax:
    """`torch.argmax` as the vendor's operator."""

    @staticmethod
    def apply(tensor: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
        """Return the positions of the largest values."""
        return torch.argmax(tensor, dim=dim, keepdim=keepdim)


class Softmax:
    """`torch.softmax` as the vendor's operator."""

    @staticmethod
    def apply(tensor: torch.Tensor, dim: int = -1) -> torch.Tensor:
        """Return the probabilities."""
        return torch.softmax(tensor, dim=dim)


class TopK:
    """`torch.topk` as the vendor's operator."""

    @staticmethod
    def apply(tensor: torch.Tensor, k: int, dim: int = -1) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the largest values, and their positions."""
        values, positions = torch.topk(tensor, k, dim=dim)
        return values, positions
