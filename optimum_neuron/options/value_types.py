"""Types and ranges of options that a caller passes, by tables of type hints or by the hints of a dataclass.

A value of None is as if the option was not passed, and 0 and 1 are booleans. It does not know what options do.

    >>> from optimum_neuron.options.value_types import COUNT, check_types
    >>> check_types({"batch_size": 2, "skip_warmup": 1}, {"batch_size": COUNT, "skip_warmup": bool})
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from ..base.typed_data import Range, misfits
from ..errors import ConfigError
from .option import ChecksKeywords
from .sizes import LARGEST_COUNT


class _AtLeast(Range):
    """Annotation of a size: its smallest value."""

    def text(self, kind: object) -> str:
        """Say what a value has to be."""
        return f"an integer of at least {self.least}"


COUNT = Annotated[int, _AtLeast(1, LARGEST_COUNT)]
"""A number of something that there is."""
NUMBER = Annotated[int, _AtLeast(0, LARGEST_COUNT)]
"""A number of something, which may be none."""
_PLAIN = (bool, int, float, str, type(None))


def check_types(options: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    """Refuse the first option whose value is not of its type; options without a type may be anything.

    Args:
        options: values by name.
        types: type hints by name.
    """
    given = {name: _plain(value, types.get(name)) for name, value in options.items() if value is not None}
    for misfit in misfits(given, types):
        name, value = misfit.key.partition(".")[0], misfit.value
        raise ConfigError(f"{misfit}.", hint=f"Pass {misfit.expected}.", option=name, value=value)


def _plain(value: object, kind: object) -> object:
    """Return 0 and 1 as booleans where those belong."""
    is_switch = kind is bool or bool in typing.get_args(kind)
    return bool(value) if is_switch and type(value) is int and value in (0, 1) else value


class ChecksFields(ChecksKeywords):
    """Base of dataclasses that refuse unknown keywords, and values that are not of the plain types of their fields."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        types = _types_of(kind)
        check_types({name: getattr(self, name) for name in types}, types)


@functools.cache
def _types_of(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass whose types are plain: numbers, texts, booleans, and lists of them."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind)]
    return {name: hints[name] for name in names if _is_plain(hints[name])}


def _is_plain(hint: Any) -> bool:
    if typing.get_origin(hint) is Annotated:
        return True
    parts = typing.get_args(hint)
    return all(map(_is_plain, parts)) if parts else hint in _PLAIN
