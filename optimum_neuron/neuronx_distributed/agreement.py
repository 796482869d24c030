"""Facts that all ranks must have alike: the ranks compare them, so that none waits for another that has stopped."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ConfigError


def require_agreement(what: str, facts: Mapping[str, Any], group: dist.ProcessGroup | None = None) -> None:
    """Require that all ranks pass the same facts; the error is raised on each of them.

    Args:
        what: the facts, in the message.
        facts: values by name.
        group: the ranks that compare; None: all.
    """
    if _agree(facts, group):
        return
    everyone = exchanged(dict(facts), group)
    for name in facts:
        values = [other.get(name) for other in everyone]
        if any(value != values[0] for value in values):
            text = ", ".join(f"{value!r} on rank {rank}" for rank, value in enumerate(values))
            message = f"Ranks have other {what}: {name} is {text}."
            raise ConfigError(message, hint="Pass the same values on every rank.", name=name, values=values)


def _agree(facts: Mapping[str, Any], group: dist.ProcessGroup | None) -> bool:
    """Whether the facts of all ranks have one text, by one number: the facts themselves would be several messages."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return True
    digest = int.from_bytes(hashlib.blake2b(repr(facts).encode(), digest_size=7).digest(), "big")
    both = torch.tensor([digest, -digest])
    dist.all_reduce(both, dist.ReduceOp.MAX, group=group)
    return int(both[0]) == -int(both[1])


def exchanged(value: object, group: dist.ProcessGroup | None = None) -> list[Any]:
    """Return the values of all ranks; without other ranks, its own."""
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return [value]
    found: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, value, group=group)
    return found


def require_everywhere(
    problem: str | None,
    hint: str,
    group: dist.ProcessGroup | None = None,
    error: type[ConfigError] = ConfigError,
    **details: object,
) -> None:
    """Raise the first problem that a rank of the group has, on all of its ranks.

    Args:
        problem: what this rank found; None: nothing.
        hint: the remedy.
        group: the ranks; None: all.
        error: its class.
        **details: facts of the error.
    """
    problems = {rank: text for rank, text in enumerate(exchanged(problem, group)) if text is not None}
    if problems:
        rank, text = next(iter(problems.items()))
        raise error(f"Rank {rank}: {text}", hint=hint, ranks=sorted(problems), **details)


@contextlib.contextmanager
def ending_together(hint: str, group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """Run a block on all ranks of a group, which wait for each other at its end.

    Where it fails on a rank, that rank ends with its own error, and the others with a `ConfigError` that repeats it.

    Args:
        hint: the remedy.
        group: the ranks; None: all.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:  # of any class: the other ranks wait for this one
        own = error
    problem = None if own is None else str(own) or type(own).__name__
    try:
        require_everywhere(problem, hint, group)
    except ConfigError:
        if own is not None:
            raise own from own.__cause__
        raise
