"""Frozen dataclasses of counts as plain JSON data, and back, with every field checked.

It does not depend on what the dataclasses mean. Fields may be numbers, strings, None, literals, tuples, mappings with
names, and dataclasses of these.

    >>> from optimum_neuron.simulator.work import Kernels
    >>> from_plain(Kernels, to_plain(Kernels((("scan", 2),))))
    Kernels(counts=(('scan', 2),))
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Return a dataclass as plain data."""
    return dataclasses.asdict(value)


def from_plain(kind: type[T], data: Any) -> T:
    """Return the dataclass that plain data stands for."""
    return _read(kind, data)


def _read(kind: Any, data: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data)
    if origin in (typing.Union, types.UnionType):
        (other,) = (one for one in args if one is not types.NoneType)
        return None if data is None else _read(other, data)
    if origin is Literal:
        valid = data in args
    elif origin is tuple:
        return _tuple(args, data)
    elif origin is Mapping or origin is dict:
        if isinstance(data, dict):
            return {key: _read(args[1], value) for key, value in data.items()}
        valid = False
    else:
        valid = type(data) is kind or (kind is float and type(data) is int)
    if not valid:
        raise ValueError(f"{data!r} is not of type {kind}")
    return data


def _dataclass(kind: Any, data: Any) -> Any:
    types_of = _types(kind)
    if not isinstance(data, dict) or data.keys() != types_of.keys():
        raise ValueError(f"not the fields of {kind.__name__}")
    return kind(**{name: _read(types_of[name], value) for name, value in data.items()})


def _tuple(args: tuple[Any, ...], data: Any) -> Any:
    if not isinstance(data, (list, tuple)):  # JSON has only lists
        raise ValueError(f"{data!r} is not a list")
    kinds = [args[0]] * len(data) if args[1:] == (...,) else args
    if len(kinds) != len(data):
        raise ValueError(f"{len(data)} values instead of {len(kinds)}")
    return tuple(_read(kind, value) for kind, value in zip(kinds, data, strict=True))


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
