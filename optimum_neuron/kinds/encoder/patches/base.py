"""A patch: a context around the call of a model while it is traced, with the reason for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Arguments = dict[str, Any]
"""What the model is called with, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
    """One deviation from the original code, which gives the same results."""

    reason: str
    """What the original does, and why that cannot be compiled."""
    around: Callable[[Any, Arguments], AbstractContextManager[Any]]
    applies: Callable[[Any, str], bool] = lambda config, task: True
    """Whether a configuration needs it for a task."""
