"""Streams as JSON and safetensors, and back: plain data, of which nothing is executed while it is read.

The JSON has short lists in place of objects, because a stream has thousands of operands. `decode` checks types and
numbers; whether the instructions obey the rules of a target is checked by `machine.verify`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

from ...errors import ArtifactError, FormatVersionError
from ...files.plain_json import parse_json
from ..dtypes import FORMATS
from ..memory import Buffer
from . import document as doc

if TYPE_CHECKING:
    import torch

_BROKEN = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_AGAIN = "Export the model again."


def encode(stream: doc.Stream) -> bytes:
    """Return a stream as JSON, without the values of its constants."""
    return json.dumps(stream.to_dict(), separators=(",", ":"), allow_nan=False).encode()


def decode(data: bytes, constants: dict[str, torch.Tensor], *, origin: str = "A stored kernel") -> doc.Stream:
    """Return the stream of a JSON text.

    Args:
        data: what `encode` returned.
    """
    try:
        document = parse_json(data)
        version = document["format"]
        if version != doc.FORMAT_VERSION:
            message = f"{origin} has stream format {version}, but this package reads version {doc.FORMAT_VERSION}."
            raise FormatVersionError(message, hint=f"Upgrade the package, or: {_AGAIN}", format_version=version)
        stream = _Reader(document).stream(constants)
    except ArtifactError:
        raise
    except _BROKEN as error:
        message = f"{origin} is no stream of instructions ({type(error).__name__}: {error})."
        raise ArtifactError(message, hint=_AGAIN) from error
    return stream


class _Reader:
    """Checks and builds one document; whatever is wrong raises one of `_BROKEN`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._lines = [_of(str, line) for line in _of(list, document["lines"])]
        self._num_memories = len(_of(list, document["memories"]))

    def stream(self, constants: dict[str, torch.Tensor]) -> doc.Stream:
        document = self._document
        names = [_of(str, name) for name in _of(list, document["constants"])]
        if sorted(constants) != sorted(names):
            raise ValueError(f"its constants are {sorted(names)}, and there are {sorted(constants)}")
        stream = doc.Stream(
            name=_of(str, document["name"]),
            target=_of(str, document["target"]),
            grid=_sizes(document["grid"]),
            memories=tuple(doc.Memory(*self._fields(doc.Memory, row)) for row in document["memories"]),
            inputs=tuple(self._tensor(number) for number in _of(list, document["inputs"])),
            changed=_sizes(document["changed"]),
            outputs=tuple(self._read("view", view) for view in _of(list, document["outputs"])),
            programs=tuple(
                tuple(self._node(*node, depth=0) for node in _of(list, program))
                for program in _of(list, document["programs"])
            ),
            constants=dict(constants),
        )
        if len(stream.programs) != math.prod(stream.grid) or max(stream.changed, default=-1) >= len(stream.inputs):
            raise ValueError(f"{len(stream.programs)} programs on {stream.grid} change {stream.changed}")
        return stream

    def _tensor(self, number: int) -> int:
        if not 0 <= _of(int, number) < self._num_memories:
            raise ValueError(f"there is no tensor {number}")
        return number

    def _node(self, kind: str, *rest: Any, depth: int) -> doc.Node:
        if kind == "loop":
            count, body = rest
            if _of(int, count) < 2:
                raise ValueError(f"a loop has {count} iterations")
            return doc.Loop(count, tuple(self._node(*node, depth=depth + 1) for node in body))
        if kind in doc.NODES:
            node: doc.Node = doc.NODES[kind](*self._fields(doc.NODES[kind], list(rest), depth))
            return node
        operands, line = rest
        values = tuple((_of(str, name), self._operand(value, depth)) for name, value in _of(dict, operands).items())
        return doc.Step(_of(str, kind), values, self._lines[_index(line)])

    def _read(self, kind: str, parts: object, depth: int = 0) -> Any:
        if kind == "affine":
            base, *steps = (_of(int, value) for value in _of(list, parts))
            if len(steps) != depth:
                raise ValueError(f"a number has {len(steps)} steps in {depth} loops")
            return doc.Affine(base, tuple(steps))
        made = doc.OPERANDS[kind](*self._fields(doc.OPERANDS[kind], parts, depth))
        if kind == "view" and len(made.shape) != len(made.strides):
            raise ValueError(f"a view of {len(made.shape)} dimensions has {len(made.strides)} strides")
        return made

    def _operand(self, value: object, depth: int) -> Any:
        if isinstance(value, list):
            return tuple(self._operand(item, depth) for item in value)
        if not isinstance(value, dict):
            return _of((bool, int, float, str, type(None)), value)
        ((kind, content),) = value.items()
        if kind == "float":
            return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
        return self._read(kind, content, depth)

    def _fields(self, cls: Any, parts: object, depth: int = 0) -> list[Any]:
        fields, given = dataclasses.fields(cls), _of(list, parts)
        if len(given) < len(fields) and fields[-1].name == "dtype":
            given = [*given, None]
        return [self._field(field, part, depth) for field, part in zip(fields, given, strict=True)]

    def _field(self, field: dataclasses.Field[Any], value: Any, depth: int) -> Any:
        match field.name:
            case "key" if value not in self._document["constants"]:
                raise ValueError(f"there is no constant {value}")
            case "tensor":
                return self._tensor(value)
            case "line":
                return self._lines[_index(value)]
            case "buffer":
                return Buffer(value).value
            case "dtype" if value is not None or field.type == "str":
                return FORMATS[value].name
        match field.type:
            case "int":
                return _index(value)
            case "str" | "bool":
                return _of({"str": str, "bool": bool}[field.type], value)
            case "View" | "Affine":
                return self._read(field.type.lower(), value, depth)
            case "tuple[int, ...]":
                return _sizes(value)
            case "tuple[int, int] | None" if value is not None:
                first, second = _sizes(value)
                return first, second
            case "tuple[tuple[int, int], ...]":
                return tuple((_index(step), _index(count)) for step, count in value)
        made = self._operand(value, depth)
        if type(made).__name__ not in field.type.replace("None", "NoneType").split(" | "):
            raise TypeError(f"{field.name} is {made}")
        return made


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is a {type(value).__name__}")
    return value


def _index(value: Any) -> int:
    if _of(int, value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def _sizes(values: object) -> tuple[int, ...]:
    return tuple(_index(value) for value in _of(list, values))
