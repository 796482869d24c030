"""The reader of ONNX files, on a file that is written here byte by byte."""

from __future__ import annotations

import re

import pytest

from optimum_neuron.checkpoints.converters.onnx import Node, read
from optimum_neuron.errors import ModelError
from tests.raising import raises


def varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def model(data_type: int = 1) -> bytes:
    """A convolution of one weight, with fields that the reader has to step over."""
    import numpy as np

    raw = np.arange(300, dtype="<f4").tobytes()  # longer than one byte can say
    weight = number(1, 150) + number(1, 2) + number(2, data_type) + message(8, b"w") + message(9, raw)
    attribute = message(5, message(1, b"alpha") + varint(2 << 3 | 5) + b"\0\0\0\0")
    texts = ((1, b"x"), (1, b"w"), (2, b"y"), (3, b"a name"), (4, b"Conv"))
    node = b"".join(message(field, text) for field, text in texts) + attribute
    graph = message(1, node) + message(2, b"graph") + message(5, weight)
    return number(1, 8) + message(2, b"producer") + message(7, graph)


def test_nodes_and_weights_are_read(tmp_path):
    (tmp_path / "model.onnx").write_bytes(model())
    graph = read(tmp_path / "model.onnx")
    assert graph.nodes == (Node(op_type="Conv", inputs=("x", "w"), outputs=("y",)),)
    assert graph.weights["w"].shape == (150, 2)
    assert graph.weights["w"].dtype == "float32" and graph.weights["w"][1, 1] == 3


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not enough values"),
        (b"<html>proxy login</html>", "ValueError|IndexError"),
        (model()[:-1], "ends behind its message"),
        (model(data_type=10), "KeyError: 10"),
    ],
    ids=["empty", "page", "cut", "float16"],
)
def test_another_file_is_refused_with_reason(tmp_path, content, expected):
    (tmp_path / "model.onnx").write_bytes(content)
    with raises(ModelError, file="model.onnx") as error:
        read(tmp_path / "model.onnx")
    assert re.search(expected, error.value.details["error"])
