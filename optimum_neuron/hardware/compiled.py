"""The target that a graph is captured for, which NKI kernels inside it are recorded for."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from .targets import Target

_TARGET: contextvars.ContextVar[Target | None] = contextvars.ContextVar("target of kernels", default=None)


@contextlib.contextmanager
def kernels_for(target: Target | None) -> Iterator[None]:
    """Run a block in which kernels are for a target, unless the environment or they themselves name one."""
    token = _TARGET.set(target)
    try:
        yield
    finally:
        _TARGET.reset(token)


def target_of_kernels() -> Target | None:
    """Return the target of the innermost `kernels_for`."""
    return _TARGET.get()
