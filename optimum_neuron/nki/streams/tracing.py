"""A kernel and its arguments become a stream: the kernel's Python runs as usual, on tensors without memory.

A tape notes instructions, new tensors, and constants, in order, with marks of loops; it does not know what instructions
mean. Shapes, dtypes, and all other arguments are constants of the stream. Python that asks for a value of a tensor is
an error, because the stream would hold for that value only.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...hardware import Target
from ...upstream.torch import disable_current_modes
from ..arguments import tensors_in
from ..core import Core, Grid, Rule, default_target, first_line, kernel_line, refuse, require, use
from ..dtypes import FORMATS, dtype_name
from ..elements import Elements
from ..indirect import ColumnTensor, IndirectTensor, MovedTensor
from ..instructions import INSTRUCTIONS, Instruction, VirtualRegister
from ..kernel import Kernel
from ..memory import Buffer, Storage
from ..operators import Operator
from ..tensor import NkiTensor
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
        self.memories.append(doc.Memory(name, buffer, storage.format.name, storage.shape, place, storage.line))
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
        require(instruction.OPCODE in INSTRUCTIONS, Rule.COLLECTIVE_IN_STREAM)
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


@dataclasses.dataclass(frozen=True)
class Traced:
    """A stream, and how the kernel's call is made of it."""

    stream: doc.Stream
    result: Any
    """What the kernel returned: `Input` and `Output` in tuples and dictionaries, or other values."""


def trace(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, target: Target | None = None) -> Traced:
    """Trace a kernel with the sizes and dtypes of its arguments.

    Args:
        kernel: the kernel, with its grid.
        args: its arguments; only sizes and dtypes of arrays are used.
        kwargs: its arguments by name.
        target: target that the kernel's Python sees; None for NEURON_PLATFORM_TARGET_OVERRIDE or trn3.
    """
    target = default_target(kernel.platform) if target is None else target
    rules, grid, tensors = kernel.keeps_rules(), Grid(shape=kernel.grid), Tensors()
    inputs: list[int] = []
    results = []
    tapes = []
    with disable_current_modes(), torch.no_grad():
        placed = _placed((args, dict(kwargs)), tensors, inputs)
        for rank in itertools.product(*map(range, kernel.grid)):
            tapes.append(Tape(tensors))
            core = Core(target=target, grid=grid, rank=rank, tape=tapes[-1], number=len(tapes) - 1)
            core.ignores_addresses, core.platform_rules = kernel.ignores_addresses, rules
            with use(core):
                results.append(_run(kernel, *placed))
    written = set().union(*(tape.written for tape in tapes))
    changed = tuple(place for place, number in enumerate(inputs) if number in written)
    outputs: list[doc.View] = []
    result = _result(results[-1], tapes[-1], inputs, outputs)
    name = kernel.function.__name__
    is_useful = result is not None or changed
    require(is_useful, Rule.NO_RESULT, line=first_line(kernel.function), kernel=name)
    kept = {*inputs, *(view.tensor for view in outputs), *_shared(tensors, kernel.grid)}
    stream = doc.Stream(
        name=name,
        target=target.name,
        grid=kernel.grid,
        memories=tuple(tensors.memories),
        inputs=tuple(inputs),
        changed=changed,
        outputs=tuple(outputs),
        programs=tuple(tape.nodes(kept) for tape in tapes),
        constants=tensors.constants,
    )
    return Traced(stream, result)


def _shared(tensors: Tensors, grid: tuple[int, ...]) -> list[int]:
    """Return the tensors that cores of a grid share, which exist from the begin on."""
    place = Buffer.shared_hbm.value
    return [number for number, memory in enumerate(tensors.memories) if grid and memory.buffer == place]


def _placed(value: object, tensors: Tensors, inputs: list[int]) -> Any:
    """Return arguments with tensors in HBM that have no memory in place of arrays."""
    if isinstance(value, torch.Tensor | np.ndarray):
        shape = tuple(int(size) for size in value.shape)
        name = f"argument_{len(inputs)}"
        kind = dtype_name(value.dtype)
        storage = Storage.empty(shape, kind, Buffer.hbm, name=name, line="", precise=True, is_traced=True)
        inputs.append(tensors.add(storage))
        return NkiTensor(storage)
    if isinstance(value, dict):
        return {key: _placed(item, tensors, inputs) for key, item in value.items()}
    if isinstance(value, list | tuple) and tensors_in(value):
        return type(value)(_placed(item, tensors, inputs) for item in value)
    return value


def _run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the kernel's Python, and name the line that asks for values."""
    try:
        return kernel.function(*args, **kwargs)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        if "meta" not in str(error).lower():
            raise
        refuse(Rule.VALUES_IN_STREAM, kernel=kernel, reason=str(error).splitlines()[0][:200])


def _result(value: object, tape: Tape, inputs: list[int], outputs: list[doc.View]) -> Any:
    """Return what a kernel returned, with tensors by number."""
    if isinstance(value, list | tuple):
        return tuple(_result(item, tape, inputs, outputs) for item in value)
    if isinstance(value, dict):
        return {key: _result(item, tape, inputs, outputs) for key, item in value.items()}
    if not isinstance(value, NkiTensor):
        return value
    require(not value.buffer.is_on_chip, Rule.RESULT_ON_CHIP, of=value, line=value.storage.line)
    number = tape.tensors.number(value.storage)
    if number in inputs and value.shape == tape.tensors.memories[number].shape:
        return doc.Input(inputs.index(number))
    view = tape.view(value)
    if view not in outputs:
        outputs.append(view)
    return doc.Output(outputs.index(view))


def output_dtype(stream: doc.Stream, view: doc.View) -> torch.dtype:
    """Return torch's dtype of a result."""
    return FORMATS[view.dtype or stream.memories[view.tensor].dtype].storage
