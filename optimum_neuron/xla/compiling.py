"""Regions that are one graph: `torch_xla.compile`, `torch_xla.step`; and eager mode, in which all else is none.

@compile(full_graph=True)
def step(inputs): ...
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..base.foreign import name_of
from . import eager, graphs


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: Mapping[str, Any] | None = None,
) -> Any:
    """Make each call of a function one graph; without a function, a context manager that is a decorator too.

    Operators that wait are a graph of their own, named `<name>_clear_pending`.

    Args:
        f: function or module.
        full_graph: raise an error where a value is read on the host within.
        name: name of the graph in reports; None: that of the function.
        max_different_graphs: raise an error when calls have made more different graphs.
        custom_compile_options: flags of XLA, which have no effect.

    Raises:
        RuntimeError: at a call, a value is read with `full_graph`, or there are more graphs than allowed.
    """
    if custom_compile_options:
        set_custom_compile_options(custom_compile_options)
    name = name if name is not None or f is None else name_of(f)
    region = graphs.Region(name, full_graph=full_graph, max_different_graphs=max_different_graphs)

    @contextlib.contextmanager
    def entered() -> Iterator[None]:
        with region:
            yield

    return entered() if f is None else entered()(f)


def step() -> contextlib.AbstractContextManager[None]:
    """Return a context manager whose block is one graph."""
    return compile()


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Warn that flags of XLA have no effect.

    Args:
        options: names and values; empty: none.
    """
    if options:
        names = ", ".join(sorted(options))
        warnings.warn(f"Flags of XLA have no effect: {names}. Set NEURON_CC_FLAGS.", UserWarning, stacklevel=3)


def eager_mode(enable: bool) -> None:
    """Let each operator be compiled and run by itself, except in functions of `compile`.

    Args:
        enable: False: operators between two syncs are one graph again.
    """
    graphs.settle("eager_mode")
    eager.set_enabled(enable)


def is_eager_mode() -> bool:
    """Return whether each operator is compiled and run by itself."""
    return eager.is_enabled()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """Return a context manager that sets the mode for a block, and gives the one before.

    Args:
        enable: as of `eager_mode`.
    """
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield before
    finally:
        eager_mode(before)
