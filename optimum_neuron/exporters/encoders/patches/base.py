"""A patch: a context around the call of a model while it is traced, with the reason for it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

Arguments = dict[str, Any]
"""What the model is called with, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch:
    """One deviation from the original code, which gives the same results."""

    reason: str
    """What the original does, and why that cannot be compiled."""
    around: Callable[[Any, Arguments], AbstractContextManager[Any]]
    """Makes the context."""
    applies: Callable[[Any, str], bool] = lambda config, task: True
    """Whether a configuration needs it for a task."""


@contextlib.contextmanager
def replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Another `forward` for a module, for a while."""
    module.forward = forward
    try:
        yield
    finally:
        del module.forward
