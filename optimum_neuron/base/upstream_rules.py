"""Whether a call came through `optimum.neuron`, which follows the rules of Optimum Neuron.

It ignores options that a model does not have, and requests for results of layers that were not exported; this package
refuses both. It exports a checkpoint only with `export=True`.

    >>> from optimum_neuron.exporters import follows_upstream, upstream_rules
    >>> with upstream_rules():
    ...     follows_upstream()
    True
    >>> follows_upstream()
    False
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

logger = logging.getLogger(__name__)

_FOLLOWED: ContextVar[set[str] | None] = ContextVar("rules of Optimum Neuron", default=None)
"""What the block has logged; None outside of blocks."""


@contextlib.contextmanager
def upstream_rules() -> Iterator[None]:
    """Follow the rules of Optimum Neuron inside a block, in this thread."""
    told = _FOLLOWED.get()
    token = _FOLLOWED.set(set() if told is None else told)
    try:
        yield
    finally:
        _FOLLOWED.reset(token)


def follows_upstream() -> bool:
    """Return whether the rules of Optimum Neuron are followed."""
    return _FOLLOWED.get() is not None


def tell_ignored(shown: str, reason: str) -> None:
    """Log what is ignored under the rules of Optimum Neuron, once in a block.

    Args:
        shown: options with their values.
        reason: why they change nothing.
    """
    told, line = _FOLLOWED.get(), f"{shown} changes nothing: {reason}."
    if told is None or line in told:
        return
    told.add(line)
    logger.info("%s", line)


def without_foreign(options: Mapping[str, Any], names: Collection[str], model: str) -> dict[str, Any]:
    """Return the options of a call; under Optimum Neuron's rules, without the ones that the model does not have."""
    foreign = {name: value for name, value in options.items() if name not in names}
    if not foreign or not follows_upstream():
        return dict(options)
    shown = ", ".join(f"{name}={value!r}" for name, value in foreign.items())
    tell_ignored(shown, f"{model} has no such option")
    return {name: value for name, value in options.items() if name in names}
