"""Reads nodes and weights of an ONNX file, without the onnx package and without running anything.

An ONNX file is one message of protobuf (onnx.proto of ONNX 1.x; encoding: protobuf.dev, "Encoding"). Four kinds of
message and eight fields of them are enough for weights, which is why this is here instead of a dependency on
onnx and protobuf. It knows no architecture.

    graph = read(Path("model.onnx"))
    graph.weights["conv.weight"].shape
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ModelError

if TYPE_CHECKING:
    import numpy as np

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Kinds of field ("wire types")."""
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_INPUT, _NODE_OUTPUT, _NODE_OP_TYPE = 1, 2, 4
_TENSOR_DIMS, _TENSOR_DATA_TYPE, _TENSOR_NAME, _TENSOR_RAW_DATA = 1, 2, 8, 9
"""Numbers of the fields in onnx.proto."""
_DTYPES = {1: "<f4", 6: "<i4", 7: "<i8"}
"""TensorProto.DataType to the dtype of numpy."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node:
    """One operator of the graph."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """The operators in the order of their execution, and the weights by name."""

    nodes: tuple[Node, ...]
    weights: dict[str, np.ndarray]


def read(path: Path) -> Graph:
    """Read an ONNX file with its weights inside."""
    content = memoryview(path.read_bytes())
    try:
        (graph,) = (value for number, value in _fields(content) if number == _MODEL_GRAPH)
        fields = list(_fields(graph))
        nodes = tuple(_node(value) for number, value in fields if number == _GRAPH_NODE)
        return Graph(nodes=nodes, weights=dict(_tensor(v) for number, v in fields if number == _GRAPH_INITIALIZER))
    except (IndexError, KeyError, UnicodeDecodeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        message = f"{path.name} is not an ONNX file with float32, int32 or int64 weights: {problem}."
        hint = "Use the file that the catalogue names."
        raise ModelError(message, hint=hint, file=path.name, error=problem) from error


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The fields of a message: number and bytes; of a number the bytes of its encoding."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        start = position
        if kind == _VARINT:
            _, position = _varint(message, position)
        elif kind == _BYTES:
            length, start = _varint(message, position)
            position = start + length
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"field {number} has the unknown kind {kind}")
        if position > len(message):
            raise ValueError(f"field {number} ends behind its message")
        yield number, message[start:position]


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


def _node(message: memoryview) -> Node:
    fields = [(number, bytes(value).decode()) for number, value in _fields(message) if number <= _NODE_OP_TYPE]
    return Node(
        op_type=next(value for number, value in fields if number == _NODE_OP_TYPE),
        inputs=tuple(value for number, value in fields if number == _NODE_INPUT),
        outputs=tuple(value for number, value in fields if number == _NODE_OUTPUT),
    )


def _tensor(message: memoryview) -> tuple[str, np.ndarray]:
    import numpy as np

    fields = list(_fields(message))
    shape = [_varint(value, 0)[0] for number, value in fields if number == _TENSOR_DIMS]
    single = {number: value for number, value in fields if number != _TENSOR_DIMS}
    dtype = _DTYPES[_varint(single[_TENSOR_DATA_TYPE], 0)[0]]
    return bytes(single[_TENSOR_NAME]).decode(), np.frombuffer(single[_TENSOR_RAW_DATA], dtype).reshape(shape)
