"""Keywords of vLLM's classes: unknown ones are `TypeError`s, as in vLLM, that name the nearest."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TypeVar

from ..errors import nearest

Class = TypeVar("Class", bound=type)


def check_keywords(given: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Refuse unknown keywords with a `TypeError`.

    Args:
        given: keywords of a call.
        known: those that there are.
        what: the function, for the message.
    """
    known = list(known)
    if unknown := [name for name in given if name not in known]:
        guesses = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        raise TypeError(f"{what} got unexpected keyword arguments: {guesses}")


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
