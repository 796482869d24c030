"""16-bit parameters: an optimizer's steps are often smaller than the distance between two of their numbers."""

from __future__ import annotations

from collections.abc import Iterable

import torch

NARROW = (torch.bfloat16, torch.float16)
"""Dtypes that lose small steps."""


def narrow(parameters: Iterable[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Return the trainable 16-bit parameters."""
    return [parameter for parameter in parameters if parameter.requires_grad and parameter.dtype in NARROW]
