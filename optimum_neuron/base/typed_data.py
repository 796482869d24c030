"""Types, ranges and paths of plain data that a stranger's file holds: one check against a table of type hints.

A table has the type of each field, as a dataclass has; limits are annotations. Each reader checks its file once, before
it uses a value, so that nothing behind it meets a text where it computes, a size of zero, or a path out of the folder.

    >>> FIELDS = {"r": Annotated[int, Range(1, 65536)], "target_modules": str | list[str] | None}
    >>> print(*misfits({"r": 0, "target_modules": ["q_proj"]}, FIELDS))
    r is 0, but must be an integer from 1 to 65,536
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from ..errors import ModelError, NeuronError

_LARGEST = 2**63 - 1
"""Of an integer without a range: it has to fit a tensor's element."""
_SHOWN = 100
_TEXTS = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}


@dataclasses.dataclass(frozen=True)
class Range:
    """Annotation of a number: its smallest and largest value."""

    least: float
    most: float
    whole: bool = False
    """Of a float: whether it is an integer, which published files may write as 1200.0."""

    def accepts(self, value: Any) -> bool:
        """Return whether a number is in the range; NaN is in none."""
        return self.least <= value <= self.most and (not self.whole or float(value).is_integer())

    def text(self, kind: object) -> str:
        """Say what a value of the type has to be."""
        noun = "an integer" if self.whole or kind is int else "a number"
        return f"{noun} from {_plain(self.least)} to {_plain(self.most)}"


@dataclasses.dataclass(frozen=True)
class Inside:
    """Annotation of a text: the path of something in the folder of the file."""

    is_name: bool = False
    """Whether it is a name in that folder itself, without folders between."""

    def accepts(self, value: str) -> bool:
        """Return whether the path cannot lead out of the folder."""
        path = pathlib.PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts or any(sign in value for sign in "\\:\0"):
            return False
        return not self.is_name or path.name == value != ""

    def text(self, kind: object) -> str:
        """Say what a value has to be."""
        return "the name of a file beside it" if self.is_name else "a path in its folder"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Misfit:
    """A value that is not of its type."""

    key: str
    """Keys that lead to it, joined by dots."""
    value: Any
    """As a message can show it."""
    expected: str

    def __str__(self) -> str:
        return f"{self.key} is {self.value!r}, but must be {self.expected}"


def misfits(data: object, kind: object, key: str = "") -> Iterator[Misfit]:
    """Yield the values of plain data, or of a dataclass made of it, that are not of their type.

    Args:
        kind: a type hint, or a table of the types of an object's fields; fields without a type may hold anything, and
            a field that is missing fits.
    """
    if isinstance(kind, Mapping):
        yield from _of_table(data, kind, key)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        for name, hint in _hints_of(kind).items():
            yield from misfits(getattr(data, name), hint, _joined(key, name))
    elif kind is not Any:
        yield from _of_hint(data, kind, key)


def require_types(
    data: object,
    kind: object,
    file: Path | str,
    *,
    error: type[NeuronError] = ModelError,
    hint: str = "Correct the file, or copy it again from its source.",
) -> None:
    """Check the data of a file."""
    for misfit in misfits(data, kind):
        details = {"file": str(file), "key": misfit.key, "value": misfit.value, "expected": misfit.expected}
        raise error(f"{file}: {misfit}.", hint=hint, **details)


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    """The type of each field of a dataclass; evaluating its annotations takes longer than checking its data."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _of_table(data: object, table: Mapping[str, Any], key: str) -> Iterator[Misfit]:
    if not isinstance(data, Mapping):
        yield _misfit(key, data, "an object")
        return
    for name, kind in table.items():
        if name in data:
            yield from misfits(data[name], kind, _joined(key, name))


def _of_hint(value: Any, kind: Any, key: str) -> Iterator[Misfit]:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        yield from _of_union(value, parts, key)
    elif origin is Annotated:
        if any(misfits(value, parts[0], key)) or not all(limit.accepts(value) for limit in parts[1:]):
            yield _misfit(key, value, parts[1].text(parts[0]))
    elif origin in (list, tuple):
        if not isinstance(value, (list, tuple)):
            yield _misfit(key, value, "a list")
        else:
            for index, one in enumerate(value):
                yield from misfits(one, parts[0], _joined(key, str(index)))
    elif origin is dict:
        if not isinstance(value, dict):
            yield _misfit(key, value, "an object")
        else:
            for name, one in value.items():
                yield from misfits(name, parts[0], _joined(key, str(name)))
                yield from misfits(one, parts[1], _joined(key, str(name)))
    elif origin is typing.Literal:
        if not isinstance(value, str) or value not in parts:
            yield _misfit(key, value, f"one of {', '.join(map(str, parts))}")
    elif not _is(value, kind):
        yield _misfit(key, value, _TEXTS[kind])


def _of_union(value: object, kinds: tuple[Any, ...], key: str) -> Iterator[Misfit]:
    """Yield the problem within a list or an object if one of the types is that, else what the value has to be."""
    found = []
    for kind in kinds:
        first = next(misfits(value, kind, key), None)
        if first is None:
            return
        found.append(first)
    inner = next((one for one in found if one.key != key), None)
    yield inner or _misfit(key, value, " or ".join(one.expected for one in found))


def _is(value: object, kind: type) -> bool:
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST
    if kind is float:
        return type(value) in (int, float) and not (isinstance(value, float) and math.isnan(value))
    return type(value) is kind


def _misfit(key: str, value: object, expected: str) -> Misfit:
    text = repr(value)
    return Misfit(key=key or "the content", value=value if len(text) <= _SHOWN else text[:_SHOWN], expected=expected)


def _joined(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) and abs(number) < 10**9 else f"{number:g}"
