"""Runs a stream on host memory, checks it against the rules of a target, or lists its instructions in order.

A stream that was checked runs without checks. To check and to list, tensors have sizes and no memory; of loops, the
first and the last iteration are checked, because all numbers in them grow by equal steps.

    outputs = run(stream, [x])
    verify(stream, target)
    analysis_of(stream.name, [record(stream, target)], None)
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...base import env
from ...hardware import Target, resolve_target
from ..arguments import Arguments
from ..core import Core, Grid, Record, Rule, refuse, require, use
from ..dtypes import FORMATS
from ..indirect import GROUPS, ColumnTensor, IndirectTensor, moved_by
from ..instructions import Instruction, VirtualRegister, checked, recorded
from ..memory import Address, Buffer, Storage
from ..operators import OPERATORS
from ..tensor import NkiTensor
from ..world import World
from . import document as doc
from .vocabulary import ENUMS, instruction_class, require_operands

Indices = tuple[int, ...]
Action = Callable[[Indices], None]
"""What a node does in an iteration of the loops around it."""
_MOVING = (types.FunctionType, types.MethodType, functools.partial)
"""Types of functions that return an operand in an iteration; an operator is callable too."""
Act = Callable[[Instruction, Core], object]
"""What is done with an instruction: it is run, or on tensors without memory checked or recorded."""


def run(stream: doc.Stream, inputs: Sequence[torch.Tensor], *, precise: bool | None = None) -> list[torch.Tensor]:
    """Run a stream on host tensors, and return what it made; inputs that it writes change in place.

    Args:
        stream: a stream that was traced here or verified.
        precise: whether values are rounded to their dtypes; None for NKI_PRECISE_FP.
    """
    rounds = env.nki_precise() if precise is None else precise
    arguments = Arguments(rounds)
    placed = [arguments.place(value, f"argument_{number}") for number, value in enumerate(inputs)]
    tensors: list[Storage | None] = [None] * len(stream.memories)
    for number, tensor in zip(stream.inputs, placed, strict=True):
        tensors[number] = tensor.storage
    target = resolve_target(stream.target).value
    cores = _cores(stream, target, precise=rounds)
    machines = [_Machine(stream, core, tensors) for core in cores]
    for machine in machines:
        machine.allocate_shared()
    programs = zip(machines, stream.programs, strict=True)
    cores[0].world.turns.run([functools.partial(machine.run, program) for machine, program in programs])
    arguments.write_back()
    with use(cores[0]):
        return [machines[0].view(view, ()).read().clone() for view in stream.outputs]


def verify(stream: doc.Stream, target: Target) -> None:
    """Check a stream against the rules of a target, as its kernel was checked when it was traced."""
    for machine, program in _dry(stream, target, checked):
        machine.iterations = lambda count: (0, count - 1)
        machine.run(program)


def record(stream: doc.Stream, target: Target) -> Core:
    """Return the first core of a launch on a target with the instructions that it executes, loops written out."""
    executed: list[Record] = []

    def act(instruction: Instruction, core: Core) -> None:
        executed.append(recorded(instruction, checked(instruction, core), core))

    machine, program = next(_dry(stream, target, act))
    machine.run(program)
    machine.core.stream = executed
    return machine.core


def _dry(stream: doc.Stream, target: Target, act: Act) -> Iterator[tuple[_Machine, tuple[doc.Node, ...]]]:
    """Return a machine whose tensors have no memory, and the program, for each core."""
    tensors: list[Storage | None] = [None] * len(stream.memories)
    for number in stream.inputs:
        tensors[number] = _storage(stream.memories[number], is_traced=True, precise=True)
    for core, program in zip(_cores(stream, target, precise=True), stream.programs, strict=True):
        machine = _Machine(stream, core, tensors, act)
        machine.allocate_shared()
        yield machine, program


def _cores(stream: doc.Stream, target: Target, *, precise: bool) -> list[Core]:
    shared: dict[str, Any] = {"target": target, "grid": Grid(shape=stream.grid), "world": World(), "precise": precise}
    ranks = itertools.product(*map(range, stream.grid))
    # What reads memory that nothing wrote is known from the kernel.
    return [Core(rank=rank, number=number, warns=False, **shared) for number, rank in enumerate(ranks)]


def _storage(memory: doc.Memory, *, is_traced: bool, precise: bool) -> Storage:
    options: dict[str, Any] = {"name": memory.name, "line": memory.line, "precise": precise}
    storage = Storage.empty(memory.shape, memory.dtype, Buffer(memory.buffer), is_traced=is_traced, **options)
    storage.address = None if memory.address is None else Address(*memory.address)
    return storage


class _Machine:
    """One core and the tensors of its stream."""

    def __init__(self, stream: doc.Stream, core: Core, tensors: list[Storage | None], act: Act | None = None) -> None:
        self.stream, self.core, self.tensors, self.is_dry = stream, core, tensors, act is not None
        self.act: Act = act or (lambda instruction, core: instruction.run(core))
        self.iterations: Callable[[int], Sequence[int]] = range
        self._tensors: dict[type, Callable[[Any, Indices], NkiTensor]] = {
            **{doc.View: self.view, doc.Gather: self._gathered, doc.Columns: self._columns},
            **{doc.Moved: self._moved, doc.Places: self._placed},
        }

    def run(self, program: tuple[doc.Node, ...]) -> None:
        """Execute a program."""
        with use(self.core):
            for action in self._actions(program, 0):
                action(())

    def allocate_shared(self) -> None:
        """Make the tensors that the cores of a grid share, before one of them uses them."""
        for number, memory in enumerate(self.stream.memories):
            if self.stream.grid and memory.buffer == Buffer.shared_hbm.value and self.tensors[number] is None:
                self._allocate(number)

    def _allocate(self, number: int) -> None:
        memory = self.stream.memories[number]
        if self.tensors[number] is None or memory.buffer != Buffer.shared_hbm.value or not self.stream.grid:
            self.tensors[number] = _storage(memory, is_traced=self.is_dry, precise=self.core.precise)

    # ------------------------------------------------------------------ nodes
    def _actions(self, nodes: tuple[doc.Node, ...], depth: int) -> list[Action]:
        return [self._action(node, depth) for node in nodes]

    def _action(self, node: doc.Node, depth: int) -> Action:
        if isinstance(node, doc.Allocate):
            return lambda indices: self._allocate(node.tensor)
        if isinstance(node, doc.Constant):
            return lambda indices: self._write(node, indices)
        if isinstance(node, doc.Copy):
            return self._copy(node)
        if isinstance(node, doc.Loop):
            return self._loop(node, depth)
        return self._step(node)

    def _copy(self, node: doc.Copy) -> Action:
        target, source = self._operand(node.target), self._operand(node.source)

        def action(indices: Indices) -> None:
            into, values = target(indices), source(indices)
            self._require_sizes(into, values.size)
            if not self.is_dry:
                into.write(values.read())

        return action

    def _loop(self, loop: doc.Loop, depth: int) -> Action:
        body = self._actions(loop.body, depth + 1)

        def action(indices: Indices) -> None:
            for number in self.iterations(loop.count):
                inner = (*indices, number)
                for one in body:
                    one(inner)

        return action

    def _write(self, node: doc.Constant, indices: Indices) -> None:
        tensor, values = self.view(node.view, indices), self.stream.constants[node.key]
        self._require_sizes(tensor, values.numel())
        if not self.is_dry:
            tensor.write(values)

    def _require_sizes(self, into: NkiTensor, count: int) -> None:
        problem = f"{count} elements are copied to {into.size} of {into.name}."
        require(into.size == count, Rule.STREAM, problem=problem)

    def _step(self, step: doc.Step) -> Action:
        self.core.line = step.line
        kind = instruction_class(step)
        fixed: dict[str, Any] = {}
        moving: list[tuple[str, Callable[[Indices], Any]]] = []
        for name, operand in step.operands:
            value = self._operand(operand)
            if isinstance(value, _MOVING):
                moving.append((name, value))
            else:
                fixed[name] = value

        def action(indices: Indices) -> None:
            self.core.line = step.line
            instruction = kind(**fixed, **{name: value(indices) for name, value in moving})
            if self.is_dry:
                require_operands(instruction)
            self.act(instruction, self.core)

        return action

    # ------------------------------------------------------------------ operands
    def _operand(self, value: object) -> Any:
        """Return an operand, or a function of the loops' numbers that returns it."""
        if type(value) in self._tensors:
            return functools.partial(self._tensors[type(value)], value)
        if isinstance(value, doc.Affine):
            return value.at
        if isinstance(value, doc.Register):
            number = value.value
            if isinstance(number, doc.Affine):
                return lambda indices: VirtualRegister(number.at(indices))
            return lambda indices: VirtualRegister(number)
        if isinstance(value, doc.Name):
            return named(value)
        if isinstance(value, tuple):
            items = [self._operand(item) for item in value]
            if not any(isinstance(item, _MOVING) for item in items):
                return tuple(items)
            return lambda indices: tuple(item(indices) if isinstance(item, _MOVING) else item for item in items)
        return value

    def view(self, view: doc.View, indices: Indices) -> NkiTensor:
        """Return a view of a tensor."""
        storage = self._of(view.tensor, view.dtype)
        offset = view.offset.at(indices)
        if self.is_dry:
            last = offset + sum(step * (size - 1) for step, size in zip(view.strides, view.shape, strict=True))
            if offset < 0 or (last >= storage.base.numel() and 0 not in view.shape):
                self._refuse_bounds(storage, offset, last)
        return NkiTensor(
            storage, storage.base.as_strided(view.shape, view.strides, int(storage.base.storage_offset()) + offset)
        )

    def _gathered(self, gather: doc.Gather, indices: Indices) -> NkiTensor:
        tensor, rows = NkiTensor(self._of(gather.tensor, gather.dtype)), self.view(gather.indices, indices)
        if self.is_dry and (not gather.pattern or rows.size < gather.pattern[0][1]):
            self._refuse_bounds(tensor.storage, gather.first, rows.size)
        return IndirectTensor.of(tensor, gather.pattern, gather.first, rows, gather.row_step, gather.num_rows)

    def _columns(self, columns: doc.Columns, indices: Indices) -> NkiTensor:
        tensor, index = self.view(columns.view, indices), self.view(columns.index, indices)
        if not self.is_dry:
            return ColumnTensor.over(tensor, index, columns.count, columns.group)
        if tensor.ndim != 2 or columns.group not in GROUPS.values() or tensor.shape[0] % columns.group:
            self._refuse_bounds(tensor.storage, 0, columns.count)
        return tensor.indirect(index, columns.count)  # the instruction's engine checks the number of offsets

    def _moved(self, moved: doc.Moved, indices: Indices) -> NkiTensor:
        tensor, index = NkiTensor(self._of(moved.tensor, moved.dtype)), self.view(moved.index, indices)
        return moved_by(tensor, moved.pattern, moved.first.at(indices), index, moved.step)

    def _placed(self, places: doc.Places, indices: Indices) -> NkiTensor:
        addresses, storage = self.stream.constants[places.key], self._of(places.tensor)
        valid = (addresses >= 0) & (addresses < storage.base.numel())
        if self.is_dry and not (places.skip or bool(valid.all())):
            self._refuse_bounds(storage, int(addresses.min()), int(addresses.max()))
        return IndirectTensor.at(NkiTensor(storage), addresses, valid, skip=places.skip)

    def _of(self, number: int, dtype: str | None = None) -> Storage:
        storage = self.tensors[number]
        if storage is None:
            refuse(Rule.STREAM, problem=f"{self.stream.memories[number].name} is used before it exists.")
        return storage if dtype is None else storage.viewed_as(FORMATS[dtype])

    def _refuse_bounds(self, storage: Storage, first: int, last: int) -> None:
        refuse(Rule.STREAM_BOUNDS, first=first, last=last, storage=storage, elements=storage.base.numel())


def named(name: doc.Name) -> Any:
    """Return the operator or the member of an enumeration that an operand names."""
    kind = ENUMS.get(name.kind)
    members: Any = OPERATORS if name.kind == "Operator" else {} if kind is None else kind.__members__
    require(name.name in members, Rule.STREAM, problem=f"There is no {name.kind} {name.name!r}.")
    return members[name.name]
