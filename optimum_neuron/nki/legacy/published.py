"""Functions of the older API by their published names; most signatures end in `**kwargs`, and other options are errors.

@published(LANGUAGE)
def transpose(x, *, dtype=None, mask=None): ...
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..jit import require_options

Function = Callable[..., Any]
ISA: dict[str, Function] = {}
LANGUAGE: dict[str, Any] = {}
"""Functions of `neuronxcc.nki.isa` and of `neuronxcc.nki.language`."""


def listed(functions: dict[str, Function], name: str = "") -> Callable[[Function], Function]:
    """Register a function that has its published signature."""

    def made(function: Function) -> Function:
        function.__name__ = function.__qualname__ = name or function.__name__
        functions[function.__name__] = function
        return function

    return made


def published(
    functions: dict[str, Function], name: str = "", *, hidden: Collection[str] = (), ignored: Collection[str] = ()
) -> Callable[[Function], Function]:
    """Register a function whose published signature ends in `**kwargs`.

    Args:
        functions: the functions of its module.
        name: its name; empty for that in Python.
        hidden: parameters that are options of `**kwargs`.
        ignored: options that change no result.
    """

    def made(function: Function) -> Function:
        own = inspect.signature(function).parameters
        label = name or function.__name__

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> Any:
            require_options(label, kwargs, (*own, *ignored))
            return function(*args, **{key: value for key, value in kwargs.items() if key not in ignored})

        rest = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)
        shown = [parameter for key, parameter in own.items() if key not in hidden]
        call.__signature__ = inspect.Signature([*shown, rest])  # type: ignore[attr-defined]
        return listed(functions, label)(call)

    return made


def signature_of(parameters: str, defaults: Mapping[str, object]) -> inspect.Signature:
    """Return a signature that is written as names and defaults; those after * are given by name."""
    found: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for word in parameters.split():
        name, _, default = word.partition("=")
        if name == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        if name.startswith("**"):
            name, kind = name[2:], inspect.Parameter.VAR_KEYWORD
        found.append(inspect.Parameter(name, kind, default=defaults[default] if default else inspect.Parameter.empty))
    return inspect.Signature(found)
