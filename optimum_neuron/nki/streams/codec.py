"""Streams as JSON and safetensors, and back: plain data, of which nothing is executed while it is read.

The JSON has short lists in place of objects, because a stream has thousands of operands. `decode` checks types and
numbers; whether the instructions obey the rules of a target is checked by `machine.verify`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ArtifactError, FormatVersionError
from ...files.plain_json import parse_json
from ..dtypes import FORMATS
from ..memory import Buffer
from .document import (
    FORMAT_VERSION,
    Affine,
    Allocate,
    Columns,
    Constant,
    Copy,
    Gather,
    Input,
    Loop,
    Memory,
    Moved,
    Name,
    Node,
    Output,
    Places,
    Register,
    Step,
    Stream,
    View,
)

if TYPE_CHECKING:
    import torch

_BROKEN = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_AGAIN = "Export the model again."


def encode(stream: Stream) -> bytes:
    """Return a stream as JSON, without the values of its constants."""
    return json.dumps(_document(stream), separators=(",", ":"), allow_nan=False).encode()


def digest_of(stream: Stream) -> str:
    """Return the SHA-256 of a stream, without lines of the kernel's source."""
    document = _document(stream, lines=False)
    digest = hashlib.sha256(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())
    for key, values in sorted(stream.constants.items()):
        digest.update(f"{key} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(_bytes(values))
    return digest.hexdigest()


def _bytes(values: torch.Tensor) -> bytes:
    import torch

    return values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def decode(data: bytes, constants: dict[str, torch.Tensor], *, origin: str = "A stored kernel") -> Stream:
    """Return the stream of a JSON text.

    Args:
        data: what `encode` returned.
    """
    try:
        document = parse_json(data)
        version = document["format"]
        if version != FORMAT_VERSION:
            message = f"{origin} has stream format {version}, but this package reads version {FORMAT_VERSION}."
            raise FormatVersionError(message, hint=f"Upgrade the package, or: {_AGAIN}", format_version=version)
        stream = _Reader(document).stream(constants)
    except ArtifactError:
        raise
    except _BROKEN as error:
        message = f"{origin} is no stream of instructions ({type(error).__name__}: {error})."
        raise ArtifactError(message, hint=_AGAIN) from error
    return stream


def _document(stream: Stream, *, lines: bool = True) -> dict[str, Any]:
    table: dict[str, int] = {}

    def line(text: str) -> list[int]:
        return [table.setdefault(text, len(table))] if lines else []

    programs = [[_node(node, line) for node in program] for program in stream.programs]
    memories = [
        [one.name, one.buffer, one.dtype, [*one.shape], one.address and [*one.address], *line(one.line)]
        for one in stream.memories
    ]
    return {
        "format": FORMAT_VERSION,
        "name": stream.name,
        "target": stream.target,
        "grid": [*stream.grid],
        "memories": memories,
        "inputs": [*stream.inputs],
        "changed": [*stream.changed],
        "outputs": [_view(view) for view in stream.outputs],
        "constants": sorted(stream.constants),
        "programs": programs,
        **({"lines": list(table)} if lines else {}),
    }


def _node(node: Node, line: Callable[[str], list[int]]) -> list[Any]:
    if isinstance(node, Allocate):
        return ["new", node.tensor]
    if isinstance(node, Constant):
        return ["constant", node.key, _view(node.view)]
    if isinstance(node, Copy):
        return ["copy", _operand(node.target), _operand(node.source)]
    if isinstance(node, Loop):
        return ["loop", node.count, [_node(inner, line) for inner in node.body]]
    return [node.opcode, {name: _operand(value) for name, value in node.operands}, *line(node.line)]


def _view(view: View) -> list[Any]:
    return [view.tensor, _number(view.offset), [*view.shape], [*view.strides], *([view.dtype] if view.dtype else [])]


def _number(value: Affine) -> Any:
    return [value.base, *value.steps]


def _operand(value: object) -> Any:
    if isinstance(value, View):
        return {"view": _view(value)}
    if isinstance(value, Gather):
        pattern, viewed = [[*pair] for pair in value.pattern], [value.dtype] if value.dtype else []
        rows = [value.row_step, value.num_rows, *viewed]
        return {"gather": [value.tensor, pattern, value.first, _view(value.indices), *rows]}
    if isinstance(value, Columns):
        return {"columns": [_view(value.view), _view(value.index), value.count, value.group]}
    if isinstance(value, Moved):
        pattern, viewed = [[*pair] for pair in value.pattern], [value.dtype] if value.dtype else []
        return {"moved": [value.tensor, pattern, _number(value.first), _view(value.index), value.step, *viewed]}
    if isinstance(value, Places):
        return {"places": [value.tensor, value.key, value.skip]}
    if isinstance(value, Name):
        return {"name": [value.kind, value.name]}
    if isinstance(value, Register):
        return {"register": [_operand(value.value)]}
    if isinstance(value, Affine):
        return {"affine": _number(value)}
    if isinstance(value, tuple):
        return [_operand(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def structure_of(result: object) -> Any:
    """Return what a kernel returned, as plain data."""
    if isinstance(result, Input | Output):
        return {"input" if isinstance(result, Input) else "output": result.number}
    if isinstance(result, tuple):
        return [structure_of(item) for item in result]
    if isinstance(result, dict):
        return {"items": {key: structure_of(item) for key, item in result.items()}}
    return {"value": result}


class _Reader:
    """Checks and builds one document; whatever is wrong raises one of `_BROKEN`."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._lines = [_of(str, line) for line in _of(list, document["lines"])]
        self._num_memories = len(_of(list, document["memories"]))

    def stream(self, constants: dict[str, torch.Tensor]) -> Stream:
        document = self._document
        names = [_of(str, name) for name in _of(list, document["constants"])]
        if sorted(constants) != sorted(names):
            raise ValueError(f"its constants are {sorted(names)}, and there are {sorted(constants)}")
        return Stream(
            name=_of(str, document["name"]),
            target=_of(str, document["target"]),
            grid=_sizes(document["grid"]),
            memories=tuple(self._memory(*row) for row in document["memories"]),
            inputs=tuple(self._tensor(number) for number in _of(list, document["inputs"])),
            changed=_sizes(document["changed"]),
            outputs=tuple(self._view(view) for view in _of(list, document["outputs"])),
            programs=tuple(
                tuple(self._node(*node, depth=0) for node in _of(list, program))
                for program in _of(list, document["programs"])
            ),
            constants=dict(constants),
        )

    def _memory(self, name: str, buffer: str, dtype: str, shape: object, address: object, line: int) -> Memory:
        kind, sizes = FORMATS[dtype].name, _sizes(shape)
        place = None if address is None else _sizes(address)
        if place is not None and len(place) != 2:
            raise ValueError(f"an address is {address}")
        return Memory(_of(str, name), Buffer(buffer).value, kind, sizes, self._lines[_index(line)], place)

    def _tensor(self, number: int) -> int:
        if not 0 <= _of(int, number) < self._num_memories:
            raise ValueError(f"there is no tensor {number}")
        return number

    def _node(self, kind: str, *rest: Any, depth: int) -> Node:
        if kind == "new":
            (number,) = rest
            return Allocate(self._tensor(number))
        if kind == "constant":
            key, view = rest
            if key not in self._document["constants"]:
                raise ValueError(f"there is no constant {key}")
            return Constant(self._view(view, depth), key)
        if kind == "copy":
            target, source = (self._operand(part, depth) for part in rest)
            if not isinstance(target, View | Places) or not isinstance(source, View | Gather | Moved | Places):
                raise TypeError("a copy is between tensors")
            return Copy(target, source)
        if kind == "loop":
            count, body = rest
            if _of(int, count) < 2:
                raise ValueError(f"a loop has {count} iterations")
            return Loop(count, tuple(self._node(*node, depth=depth + 1) for node in body))
        operands, line = rest
        values = tuple((_of(str, name), self._operand(value, depth)) for name, value in _of(dict, operands).items())
        return Step(_of(str, kind), values, self._lines[_index(line)])

    def _view(self, parts: object, depth: int = 0) -> View:
        tensor, offset, shape, strides, *viewed = _of(list, parts)
        return View(self._tensor(tensor), _affine(offset, depth), _sizes(shape), _sizes(strides), _dtype(viewed))

    def _operand(self, value: object, depth: int) -> Any:
        if isinstance(value, list):
            return tuple(self._operand(item, depth) for item in value)
        if not isinstance(value, dict):
            return _of((bool, int, float, str, type(None)), value)
        ((kind, content),) = value.items()
        if kind == "view":
            return self._view(content, depth)
        if kind == "gather":
            tensor, pattern, first, indices, row_step, num_rows, *viewed = content
            rows = (self._view(indices, depth), _index(row_step), _index(num_rows), _dtype(viewed))
            return Gather(self._tensor(tensor), _pattern(pattern), _index(first), *rows)
        if kind == "columns":
            view, index, count, group = content
            return Columns(self._view(view, depth), self._view(index, depth), _index(count), _index(group))
        if kind == "moved":
            tensor, pattern, first, index, step, *viewed = content
            moved = (self._view(index, depth), _index(step), _dtype(viewed))
            return Moved(self._tensor(tensor), _pattern(pattern), _affine(first, depth), *moved)
        if kind == "places":
            tensor, key, skip = content
            if key not in self._document["constants"]:
                raise ValueError(f"there is no constant {key}")
            return Places(self._tensor(tensor), key, _of(bool, skip))
        if kind == "name":
            of, name = content
            return Name(_of(str, of), _of(str, name))
        if kind == "register":
            (number,) = content
            return Register(self._operand(number, depth))
        if kind == "affine":
            return _affine(content, depth)
        if kind == "float":
            return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
        raise ValueError(f"an operand is {kind!r}")


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{value!r} is a {type(value).__name__}")
    return value


def _index(value: Any) -> int:
    if _of(int, value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


def _dtype(viewed: list[Any]) -> str | None:
    (dtype,) = viewed or (None,)
    return None if dtype is None else FORMATS[dtype].name


def _pattern(pairs: Any) -> tuple[tuple[int, int], ...]:
    return tuple((_index(step), _index(count)) for step, count in pairs)


def _sizes(values: object) -> tuple[int, ...]:
    return tuple(_index(value) for value in _of(list, values))


def _affine(values: object, depth: int) -> Affine:
    base, *steps = (_of(int, value) for value in _of(list, values))
    if len(steps) != depth:
        raise ValueError(f"a number has {len(steps)} steps in {depth} loops")
    return Affine(base, tuple(steps))
