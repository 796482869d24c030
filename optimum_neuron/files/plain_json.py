"""JSON of files that anyone may have written, and plain data in one spelling.

Every problem of a file raises the same error. `json.loads` raises RecursionError for text that is nested deeply, and
reading a file can fail in two more ways. Readers here have one error to handle.

`canonical_json` spells equal facts as equal bytes, so that they have equal hashes on every machine. Text, numbers,
booleans, None, lists and mappings with text keys have such a spelling; anything else (paths, tensors, NaN) is an error,
because its spelling would differ between machines. Neither depends on the meaning of the data.

    >>> canonical_json({"b": (1, 2), "a": None}, what="example")
    b'{"a":null,"b":[1,2]}'

    try:
        size = from_plain(Size, parse_json(path.read_bytes()))
    except ValueError:
        ...
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from ..errors import ConfigError, ModelError

T = TypeVar("T")


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    >>> parse_json(b'{"version": 1}')
    {'version': 1}
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json(path: Path) -> Any:
    """Return the value of a JSON file that belongs to a model."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file that belongs to a model."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise _unreadable(path, f"it holds a {type(content).__name__} instead of an object")
    return content


def _unreadable(path: Path, problem: str) -> ModelError:
    message = f"{path} is damaged: {problem}."
    return ModelError(message, hint="Copy the file again from its source, or export the model again.", file=str(path))


def to_plain(value: Any) -> Any:
    """Return a dataclass as plain data, without the fields that have their defaults."""
    if dataclasses.is_dataclass(value):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: to_plain(one) for field, one in fields if one != field.default}
    if isinstance(value, Mapping):
        return {key: to_plain(one) for key, one in value.items()}
    return [to_plain(one) for one in value] if isinstance(value, (tuple, list)) else value


def from_plain(kind: type[T], data: Any) -> T:
    """Return the dataclass that plain data stands for; a ValueError if it stands for none.

    >>> from_plain(tuple[int, ...], [1, 2])
    (1, 2)
    """
    try:
        return _typed(kind, data)
    except TypeError as error:
        raise ValueError(f"a field is missing ({error})") from error


def _typed(kind: Any, data: Any) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        made: Any = kind
        hints = _types(made)
        if not isinstance(data, dict) or not data.keys() <= hints.keys():
            raise ValueError(f"not the fields of {kind}")
        return made(**{name: _typed(hints[name], value) for name, value in data.items()})
    if origin in (typing.Union, types.UnionType):
        (other,) = (one for one in args if one is not types.NoneType)
        return None if data is None else _typed(other, data)
    if origin is tuple and isinstance(data, (list, tuple)):  # JSON has only lists
        kinds = [args[0]] * len(data) if args[1:] == (...,) else args
        return tuple(_typed(one, value) for one, value in zip(kinds, data, strict=True))
    if origin in (Mapping, dict) and isinstance(data, dict):
        return {key: _typed(args[1], value) for key, value in data.items()}
    if data in args if origin is Literal else type(data) is kind or (kind is float and type(data) is int):
        return data
    raise ValueError(f"{data!r} is not of type {kind}")


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def canonical_json(value: object, *, what: str) -> bytes:
    """Spell plain data as ASCII JSON with sorted keys and no blanks.

    Args:
        value: Text, numbers, booleans, None, and lists, tuples and mappings of those.
        what: Name of the data, for error messages.
    """
    problems: list[str] = []
    plain = _plain(value, "", problems)
    if problems:
        message = f"The {what} has values without a portable JSON form: {'; '.join(problems)}."
        hint = "Convert them to text, finite numbers, booleans, None, lists, or dictionaries with text keys."
        raise ConfigError(message, hint=hint, what=what, problems=problems)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _plain(value: object, where: str, problems: list[str]) -> Any:
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                problems.append(f"{where or 'top level'} has the key {key!r} of type {type(key).__name__}")
        return {str(k): _plain(v, f"{where}.{k}" if where else str(k), problems) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{i}]", problems) for i, item in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{where} is {value}")
    elif not isinstance(value, (str, int, float, type(None))):
        problems.append(f"{where} is a {type(value).__name__}")
    return value
