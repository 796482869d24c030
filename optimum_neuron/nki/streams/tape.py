"""What a kernel does while it is traced: instructions, new tensors, and constants, in order, with marks of loops.

The kernel's Python runs as usual, on tensors that have sizes and no memory, so whatever depends on values is an error.
The tape does not know what instructions mean.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch

from ..core import Rule, kernel_line, refuse, require
from ..elements import Elements
from ..indirect import ColumnTensor, IndirectTensor, MovedTensor
from ..instructions import Instruction, VirtualRegister
from ..memory import Storage
from ..operators import Operator
from . import document as doc
from .folding import Mark, folded

_PLAIN = (bool, int, float, str, type(None))


class Tensors:
    """The tensors of one launch, numbered in the order in which they appear; all cores share them."""

    def __init__(self) -> None:
        self.memories: list[doc.Memory] = []
        self.constants: dict[str, torch.Tensor] = {}
        self._numbers: dict[int, int] = {}

    def add(self, storage: Storage) -> int:
        """Number a tensor."""
        number = self._numbers[storage.number] = len(self.memories)
        # Names that were made up count all tensors of the process, and a stream is named by its content.
        buffer = storage.buffer.value
        name = f"{buffer}_{number}" if re.fullmatch(rf"{buffer}_\d+", storage.name) else storage.name
        place = None if storage.address is None else (storage.address.partition, storage.address.byte)
        facts = buffer, storage.format.name, storage.shape, storage.line
        self.memories.append(doc.Memory(name, *facts, place))
        return number

    def constant(self, values: torch.Tensor) -> str:
        """Keep values, and return their name, which is the same for the same values."""
        kept = values.detach().to("cpu", copy=True).contiguous()
        content = kept.reshape(-1).view(torch.uint8).numpy().tobytes()
        text = f"{kept.dtype} {tuple(kept.shape)}".encode()
        key = hashlib.sha256(text + content).hexdigest()[:16]
        self.constants[key] = kept
        return key

    def number(self, storage: Storage) -> int:
        """Return the number of a tensor."""
        return self._numbers[storage.number]


@dataclasses.dataclass(frozen=True)
class TracedRange(Sequence[int]):
    """The numbers of a loop, as `range`, which tells the tape when an iteration begins."""

    tape: Tape
    numbers: range

    def __iter__(self) -> Iterator[int]:
        return self.tape.iterations(self.numbers)

    def __getitem__(self, key: Any) -> Any:
        return self.numbers[key]

    def __len__(self) -> int:
        return len(self.numbers)


class Tape:
    """The trace of one core."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self.written: set[int] = set()
        self._nodes: list[doc.Node] = []
        self._marks: list[Mark] = []

    def nodes(self, kept: Collection[int]) -> tuple[doc.Node, ...]:
        """Return what was traced, with loops folded; `kept` are tensors that others use."""
        return folded(self._nodes, self._marks, kept)

    def allocate(self, storage: Storage) -> None:
        """Note a new tensor."""
        self._nodes.append(doc.Allocate(self.tensors.add(storage)))

    def write(self, tensor: Elements, values: torch.Tensor) -> None:
        """Note values that are known before the kernel runs."""
        key = self.tensors.constant(values)
        self._note_write(tensor)
        self._nodes.append(doc.Constant(key, self.view(tensor)))

    def copy(self, tensor: Elements, source: Elements) -> None:
        """Note a copy that no instruction makes."""
        self._note_write(tensor)
        self._nodes.append(doc.Copy(self._part(tensor), self._part(source)))

    def note(self, instruction: Instruction) -> None:
        """Note an instruction."""
        require(isinstance(type(instruction).OPCODE, str), Rule.COLLECTIVE_IN_STREAM)
        names = [field.name for field in dataclasses.fields(instruction) if field.name != "name"]
        operands = tuple((name, self._operand(instruction, name, getattr(instruction, name))) for name in names)
        for tile in instruction.tiles(instruction.WRITES).values():
            self._note_write(tile)
        self._nodes.append(doc.Step(instruction.OPCODE, operands, kernel_line()))

    def loop(self, numbers: range) -> TracedRange:
        """Return the numbers of a loop, whose iterations may be folded."""
        return TracedRange(self, numbers)

    def iterations(self, numbers: range) -> Iterator[int]:
        """Run through a loop."""
        mark = Mark([])
        self._marks.append(mark)
        for number in numbers:
            mark.starts.append(len(self._nodes))
            yield number
            mark.end = len(self._nodes)

    def _note_write(self, tensor: Elements) -> None:
        self.written.add(self.tensors.number(tensor.storage))

    def view(self, tensor: Elements) -> doc.View:
        """Return a view as data."""
        number = self.tensors.number(tensor.storage)
        return doc.View(number, doc.Affine(tensor.offset), tensor.shape, tensor.strides, self._viewed(number, tensor))

    def _viewed(self, number: int, tensor: Elements) -> str | None:
        """Return the dtype as which a tensor is read, if it is not its own."""
        return None if self.tensors.memories[number].dtype == tensor.dtype else tensor.dtype

    def _part(self, value: Elements) -> Any:
        """Return a view of any kind as data."""
        number = self.tensors.number(value.storage)
        if isinstance(value, MovedTensor):
            pattern = tuple(zip(value.strides, value.shape, strict=True))
            moved = (self.view(value.index), value.step, self._viewed(number, value))
            return doc.Moved(number, pattern, doc.Affine(value.first), *moved)
        if not isinstance(value, IndirectTensor):
            return self.view(value)
        if isinstance(value, ColumnTensor):
            assert value.indices is not None
            return doc.Columns(self.view(value.source), self.view(value.indices), value.shape[1], value.group)
        if value.indices is not None:
            pattern = tuple(zip(value.steps, value.shape, strict=True))
            rows = (value.row_step, value.num_rows, self._viewed(number, value))
            return doc.Gather(number, pattern, value.first, self.view(value.indices), *rows)
        return doc.Places(number, self.tensors.constant(value.addresses.where(value.valid, -1)), value.skip)

    def _operand(self, instruction: Instruction, name: str, value: object) -> Any:
        if isinstance(value, Elements):
            return self._part(value)
        if isinstance(value, Operator):
            return doc.Name("Operator", value.name)
        if isinstance(value, enum.Enum):
            return doc.Name(type(value).__name__, value.name)
        if isinstance(value, VirtualRegister):
            return doc.Register(value.value)
        if isinstance(value, list | tuple):
            return tuple(self._operand(instruction, name, item) for item in value)
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, _PLAIN):
            return value
        refuse(Rule.OPERAND_IN_STREAM, instruction=instruction.OPCODE, operand=name, value=value)
