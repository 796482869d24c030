"""The tape of a graph, as C++ records it (device/csrc/xla/recorder.h), read into operators with their arguments.

for operation in read_tape(functions, closed.num_words):
    print(operation.name, operation.arguments)
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import struct
from collections.abc import Iterator, Sequence
from typing import Any

_INT64 = ctypes.c_int64


class Word(enum.IntEnum):
    """What follows on the tape; `enum Word` of recorder.h."""

    OPERATOR = 0
    NONE = 1
    TENSOR = 2
    HOST_TENSOR = 3
    INTEGER = 4
    BOOL = 5
    FLOAT = 6
    INTEGER_DATA = 7
    FLOAT_DATA = 8
    LIST = 9
    STRING = 10
    OPAQUE = 11
    RESULTS = 12


class Closed(ctypes.Structure):
    """A graph that ended; `struct Closed` of recorder.h."""

    _fields_ = tuple(
        (name, _INT64)
        for name in (
            *("hash_high", "hash_low", "num_operators", "num_inputs", "num_outputs", "num_aliased"),
            *("input_bytes", "output_bytes", "began_ns", "ended_ns", "num_words", "num_slots"),
        )
    )

    @property
    def hash(self) -> str:
        """The 128-bit hash, in hexadecimal."""
        return f"{self.hash_high & (2**64 - 1):016x}{self.hash_low & (2**64 - 1):016x}"


class Transfer(ctypes.Structure):
    """One copy between host and device; `struct Transfer` of recorder.h."""

    _fields_ = (("to_device", _INT64), ("size_bytes", _INT64), ("took_ns", _INT64))


@dataclasses.dataclass(frozen=True)
class Operand:
    """A tensor of the device: where it lies in a slot, which is one storage."""

    slot: int
    dtype: int
    """torch's number of it."""
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class HostOperand:
    """A tensor of the host."""

    dtype: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operation:
    """One call of an operator."""

    name: str
    """With its overload, such as "aten::add.Tensor"."""
    place: int
    """Number of the place in the program that first called it with such arguments."""
    arguments: tuple[Any, ...]
    """Operands, numbers, strings, None, and lists of them, in the order of the schema."""
    results: tuple[Any, ...]
    """Operands, None, and lists of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlotState:
    """A storage of a graph when it ended."""

    is_input: bool
    """Whether it had values when the graph began."""
    size_bytes: int
    is_output: bool
    """Whether the graph wrote it, and a tensor still holds it."""
    shape: tuple[int, ...] | None = None
    """Sizes of the tensor that the host gave, if it did."""


def operands(values: Sequence[Any]) -> Iterator[Operand]:
    """Yield the tensors of the device in arguments or results."""
    for value in values:
        if isinstance(value, Operand):
            yield value
        elif isinstance(value, list):
            yield from operands(value)


def read_slots(functions: ctypes.CDLL, count: int) -> list[SlotState]:
    """Return the storages of the graph that ended last."""
    states, state = [], (_INT64 * 5)()
    for slot in range(count):
        functions.xla_slot(slot, state)
        kind, size_bytes, is_alive, was_written, shape = state
        states.append(
            SlotState(
                is_input=kind == 0,
                size_bytes=size_bytes,
                is_output=bool(is_alive and was_written),
                shape=_shape(functions, shape),
            )
        )
    return states


def _shape(functions: ctypes.CDLL, number: int) -> tuple[int, ...] | None:
    return None if number < 0 else tuple(map(int, functions.xla_string(number).split()))


def read_tape(functions: ctypes.CDLL, num_words: int) -> list[Operation]:
    """Return the operators of the graph that ended last, in their order."""
    return list(_Reader(functions, functions.xla_tape()[:num_words] if num_words else []).operations())


class _Reader:
    def __init__(self, functions: ctypes.CDLL, words: list[int]) -> None:
        self._functions, self._words, self._place = functions, words, 0
        self._names: dict[int, str] = {}

    def operations(self) -> Iterator[Operation]:
        while self._place < len(self._words):
            tag, number, place = self._take(3)
            assert tag == Word.OPERATOR
            arguments = []
            while self._words[self._place] != Word.RESULTS:
                arguments.append(self._value())
            count = self._take(2)[1]
            results = tuple(self._value() for _ in range(count))
            yield Operation(name=self._name(number), place=place, arguments=tuple(arguments), results=results)

    def _take(self, count: int) -> list[int]:
        self._place += count
        return self._words[self._place - count : self._place]

    def _value(self) -> Any:
        (tag,) = self._take(1)
        if tag in (Word.NONE, Word.OPAQUE):
            return None
        if tag == Word.TENSOR:
            slot, dtype, offset, dimensions = self._take(4)
            return Operand(slot, dtype, offset, tuple(self._take(dimensions)), tuple(self._take(dimensions)))
        if tag == Word.HOST_TENSOR:
            dtype, dimensions = self._take(2)
            return HostOperand(dtype, tuple(self._take(dimensions)), tuple(self._take(dimensions)))
        (word,) = self._take(1)
        if tag == Word.LIST:
            return [self._value() for _ in range(word)]
        if tag == Word.STRING:
            self._take(1)  # its hash
            return self._functions.xla_string(word).decode()
        if tag in (Word.FLOAT, Word.FLOAT_DATA):
            return struct.unpack("d", struct.pack("q", word))[0]
        return bool(word) if tag == Word.BOOL else word

    def _name(self, number: int) -> str:
        if number not in self._names:
            self._names[number] = self._functions.xla_operator_name(number).decode()
        return self._names[number]
