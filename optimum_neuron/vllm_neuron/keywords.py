"""Keywords of vLLM: unknown ones are `TypeError`s that name the nearest, and those without effect are logged."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterable
from typing import TypeVar

from ..errors import nearest

logger = logging.getLogger(__name__)

Class = TypeVar("Class", bound=type)


def check_keywords(given: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Refuse unknown keywords with a `TypeError`.

    Args:
        given: keywords of a call.
        known: keywords of the function.
        what: the function, for the message.
    """
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        guesses = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        raise TypeError(f"{what} got unexpected keyword arguments: {guesses}")


def log_unused(names: Iterable[str], *, where: str = "on a simulated core") -> None:
    """Log keywords without effect in one line, if there are any."""
    if unused := ", ".join(names):
        logger.info(f"Without effect {where}: %s.", unused)


def checked(owner: Class) -> Class:
    """Let a dataclass refuse unknown keywords with the nearest name."""
    plain = owner.__init__  # type: ignore[misc]  # a class, not an object
    names = [field.name for field in dataclasses.fields(owner) if field.init]

    @functools.wraps(plain)
    def __init__(self: object, *args: object, **options: object) -> None:
        check_keywords(options, names, what=f"{owner.__name__}()")
        plain(self, *args, **options)

    owner.__init__ = __init__  # type: ignore[misc]
    return owner
