"""Graphs between two calls of `sync`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from . import closures, device, metrics

_execution_allowed = True


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """End the graph of a step: torch_xla's `sync` and `mark_step`.

    Args:
        wait: accepted as torch_xla does; values are there already.
        reset_scope: whether names of scopes start again.
    """
    device.enable()
    metrics.increment_counter("MarkStep")
    closures.run_step_closures()


def execution_allowed() -> bool:
    """Return whether values may be read on the host."""
    return _execution_allowed


@contextlib.contextmanager
def allow_execution(allowed: bool) -> Iterator[None]:
    """Allow or refuse to read values on the host for the length of a block."""
    global _execution_allowed
    before, _execution_allowed = _execution_allowed, allowed
    try:
        yield
    finally:
        _execution_allowed = before


class Region:
    """A block that is one graph: what torch_xla's `compile` and `step` make of a function.

    Work that waits is a graph of its own, named `<name>_clear_pending`; the block's graph ends with it.
    """

    def __init__(
        self, name: str | None = None, *, full_graph: bool = False, max_different_graphs: int | None = None
    ) -> None:
        self.name, self.full_graph, self.max_different_graphs = name, full_graph, max_different_graphs

    def __enter__(self) -> Region:
        sync()
        return self

    def __exit__(self, *_: object) -> None:
        sync()
