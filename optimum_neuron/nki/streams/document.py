"""A stream: tensors, and instructions in loops, as frozen data.

Numbers that change from one iteration of a loop to the next are `Affine`: they begin at `base` and grow by a step with
each enclosing loop, outermost first. This module knows no instruction: operands are views, numbers, and names.

    >>> Affine(base=4, steps=(128,)).at((2,))
    260
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import torch

from ..dtypes import FORMATS
from ..memory import Buffer

FORMAT_VERSION = 3
"""Version of stored streams."""


@dataclasses.dataclass(frozen=True, slots=True)
class Affine:
    """An integer that depends on the numbers of the enclosing loops."""

    base: int
    """Its value in the first iteration of all of them."""
    steps: tuple[int, ...] = ()
    """By how much it grows with each loop, outermost first."""

    def at(self, indices: tuple[int, ...]) -> int:
        """Return the number in an iteration of each loop."""
        return self.base + sum(step * index for step, index in zip(self.steps, indices, strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class Memory:
    """One tensor of a stream."""

    name: str
    """Name, for messages and timelines."""
    buffer: str
    """Memory that it is in, as `nl.sbuf`."""
    dtype: str
    shape: tuple[int, ...]
    address: tuple[int, int] | None = None
    """First partition and byte, if the kernel placed it."""
    line: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A part of a tensor."""

    tensor: int
    offset: Affine
    """First element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Steps between elements, in elements."""
    dtype: str | None = None
    """Dtype as which the memory is read; None for the tensor's own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Gather:
    """A part of a tensor whose rows are chosen by indices in memory."""

    tensor: int
    pattern: tuple[tuple[int, int], ...]
    """Step and count of each dimension."""
    first: int
    """Element that index 0 names."""
    indices: View
    row_step: int
    """Elements from one index to the next."""
    num_rows: int
    dtype: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a part of a tensor that offsets in memory choose."""

    view: View
    index: View
    count: int
    group: int
    """Partitions that share offsets."""


@dataclasses.dataclass(frozen=True, slots=True)
class Moved:
    """A part of a tensor that begins where an index in memory says."""

    tensor: int
    pattern: tuple[tuple[int, int], ...]
    first: Affine
    index: View
    step: int
    dtype: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Elements of a tensor by their numbers, which were known when the kernel was traced."""

    tensor: int
    key: str
    """Constant with the number of each element, -1 for those that are left out."""
    skip: bool
    """Whether elements may be left out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """An operand that is one of a fixed set: an operator, or a member of an enumeration."""

    kind: str
    """"Operator", or the class of the enumeration."""
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Register:
    """A register that holds a number."""

    value: Affine | int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Allocate:
    """A tensor begins, with content that nothing wrote."""

    tensor: int


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """A part of a tensor gets values that were known when the kernel was traced."""

    key: str
    view: View


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A part of a tensor gets the values of another one, by no instruction: the one before could have written both."""

    target: View | Places
    source: View | Gather | Moved | Places


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One instruction."""

    opcode: str
    operands: tuple[tuple[str, Any], ...]
    line: str = dataclasses.field(default="", compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """Instructions that are repeated."""

    count: int
    """Iterations, at least 2."""
    body: tuple[Node, ...]


Node = Allocate | Constant | Copy | Step | Loop
NODES: dict[str, Any] = {"new": Allocate, "constant": Constant, "copy": Copy}
"""Nodes that are no instructions, by their kind in stored streams: the fields are stored in order."""
OPERANDS: dict[str, Any] = {
    **{"affine": Affine, "columns": Columns, "gather": Gather, "moved": Moved},
    **{"name": Name, "places": Places, "register": Register, "view": View},
}
"""Operands that are no plain values, likewise."""
_NAMES = {cls: kind for kind, cls in (NODES | OPERANDS).items()}
_FIELDS = {cls: [(field.name, "|" in str(field.type)) for field in dataclasses.fields(cls)] for cls in _NAMES}
"""Their fields, and whether one may be of several kinds, which is stored then."""


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """A result that is an argument of the kernel."""

    number: int
    """Number among the tensors that the kernel was given."""


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """A result that the kernel made."""

    number: int
    """Number among `Stream.outputs`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """One launch of a kernel with static shapes."""

    name: str
    target: str
    """Target that it was traced for, which its Python may have asked for."""
    grid: tuple[int, ...] = ()
    """Sizes of the grid; () for one core."""
    memories: tuple[Memory, ...]
    inputs: tuple[int, ...]
    changed: tuple[int, ...]
    """Which of the arguments it writes, counted in `inputs`."""
    outputs: tuple[View, ...]
    """Results that are no arguments."""
    programs: tuple[tuple[Node, ...], ...]
    """Instructions of each place of the grid."""
    constants: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict, compare=False)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of what it computes: of everything but lines of the kernel's source."""
        document = self.to_dict(lines=False)
        digest = hashlib.sha256(json.dumps(document, separators=(",", ":"), allow_nan=False).encode())
        for key, values in sorted(self.constants.items()):
            digest.update(f"{key} {values.dtype} {tuple(values.shape)}".encode())
            digest.update(values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def to_dict(self, *, lines: bool = True) -> dict[str, Any]:
        """Return it as plain data, without the values of its constants; `lines` are those of the kernel's source."""
        table: dict[str, int] = {}

        def line(text: str) -> list[int]:
            return [table.setdefault(text, len(table))] if lines else []

        programs = [[_node(node, line) for node in program] for program in self.programs]
        memories = [
            [*map(_plain, (one.name, one.buffer, one.dtype, one.shape, one.address)), *line(one.line)]
            for one in self.memories
        ]
        return {
            "format": FORMAT_VERSION,
            "name": self.name,
            "target": self.target,
            "grid": [*self.grid],
            "memories": memories,
            "inputs": [*self.inputs],
            "changed": [*self.changed],
            "outputs": _plain(self.outputs, is_named=False),
            "constants": sorted(self.constants),
            "programs": programs,
            **({"lines": list(table)} if lines else {}),
        }

    @property
    def private_bytes(self) -> int:
        """HBM of tensors that are neither arguments nor results."""
        known = {*self.inputs, *(view.tensor for view in self.outputs)}
        on_chip = (Buffer.sbuf.value, Buffer.psum.value)
        own = [one for number, one in enumerate(self.memories) if number not in known and one.buffer not in on_chip]
        return sum(math.prod(one.shape) * FORMATS[one.dtype].size_bytes for one in own)

    @property
    def num_steps(self) -> int:
        """Instructions that are stored: those of a loop count once."""
        return sum(_stored(program) for program in self.programs)

    @property
    def num_instructions(self) -> int:
        """Instructions that are executed."""
        return sum(_executed(program) for program in self.programs)


def _stored(nodes: tuple[Node, ...]) -> int:
    return sum(_stored(node.body) if isinstance(node, Loop) else isinstance(node, Step) for node in nodes)


def _executed(nodes: tuple[Node, ...]) -> int:
    loops = sum(node.count * _executed(node.body) for node in nodes if isinstance(node, Loop))
    return loops + sum(isinstance(node, Step) for node in nodes)


def _node(node: Node, line: Callable[[str], list[int]]) -> list[Any]:
    if isinstance(node, Loop):
        return ["loop", node.count, [_node(inner, line) for inner in node.body]]
    if isinstance(node, Step):
        return [node.opcode, {name: _plain(value) for name, value in node.operands}, *line(node.line)]
    return [_NAMES[type(node)], *_plain(node, is_named=False)]


def _plain(value: Any, *, is_named: bool = True) -> Any:
    """Return an operand as plain data, with its kind or only its fields; the tensor's own dtype is left out."""
    kind = type(value)
    if kind is tuple or kind is list:
        return [_plain(item, is_named=is_named) for item in value]
    if kind is float and not math.isfinite(value):
        return {"float": repr(value)}
    if kind not in _NAMES:
        return value
    fields = [_plain(getattr(value, name), is_named=is_any) for name, is_any in _FIELDS[kind]]
    if kind is Affine:
        fields = [value.base, *value.steps]
    elif kind in (View, Gather, Moved) and value.dtype is None:
        fields.pop()
    return {_NAMES[kind]: fields} if is_named else fields
