"""The ranks of one launch, and what they posted for each other. How they exchange it is in `exchange.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from .turns import Turns

Key = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Post:
    """What one rank brings to a collective."""

    opcode: str
    """Name of the function that it called."""
    terms: tuple[Any, ...]
    """What all ranks of the group must have in common: sizes, dtypes, operator."""
    line: str
    """Line of the kernel that called."""
    tensors: tuple[torch.Tensor, ...]


@dataclasses.dataclass
class World:
    """All ranks of one launch."""

    size: int = 1
    turns: Turns = dataclasses.field(default_factory=Turns)
    """Which core runs."""
    posts: dict[Key, dict[int, Post]] = dataclasses.field(default_factory=dict)
    """What ranks posted, by collective and rank."""
    done: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    """Collectives that a rank finished, so that its other physical cores need not."""
