"""What all instructions have in common: operands, the rules of tiles, execution, and the record of it.

An instruction is a class with `@instruction`, which makes it a frozen dataclass and its function of `nki.isa`: the
class has its name, the fields are the operands and the function's parameters, the docstring is the function's. Tiles
with `dst` in their name, and `reduce_res`, are written; the others are read. `MEMORIES`, `DTYPES` and `CHOICES` limit
operands, `CONVERT` changes arguments. A subclass adds `check` (its own rules), `run` (what it computes) and, where its
engine has no common cost, `cycles`; `search.py` has short examples. `execute` does the four in order, on the core.

Rules are those of the public documentation of `nki.isa`; a broken one is a KernelError with the line of the kernel.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, TypeVar

from ...errors import KernelError
from .. import cost
from ..core import Core, Record, Rule, current, kernel_line, refuse, require
from ..cost import InstructionCost
from ..dtypes import as_float32
from ..memory import Buffer
from ..operators import Operator, as_operator
from ..tensor import NkiTensor
from . import rules
from .handles import NkiInstruction

MAX_DIMS = 5
"""Dimensions of an access pattern: partitions and four more."""
ON_CHIP = frozenset({Buffer.sbuf, Buffer.psum})
SBUF = frozenset({Buffer.sbuf})
PSUM = frozenset({Buffer.psum})
Operand: TypeAlias = Any
"""A number, or a tile with one element for each partition."""


class Engine(enum.Enum):
    """An engine of the core, numbered as in `nki.isa`."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6

    __hash__ = object.__hash__


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction with its operands."""

    OPCODE: ClassVar[str] = ""
    """Name of the function, from that of the class."""
    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    """Fields with tiles."""
    MAIN: ClassVar[str] = ""
    """The first of them that is no number or vector; those that are read come first."""
    MEMORIES: ClassVar[Mapping[str, frozenset[Buffer]]] = {}
    """Where a tile may be, if not in both memories of the chip, or in SBUF on GpSimd."""
    DTYPES: ClassVar[Mapping[str, Collection[str]]] = {}
    """Dtypes that a tile may have, if not all."""
    SAME_DTYPE: ClassVar[tuple[str, ...]] = ()
    """Tiles of one dtype, because their bits are moved."""
    CHOICES: ClassVar[Mapping[str, Collection[Any]]] = {}
    """Values that an operand may have, if not all; operators by name."""
    ENGINES: ClassVar[tuple[Engine, ...]] = (Engine.vector,)
    """Engines that have it, the default first."""
    RATE: ClassVar[float | None] = None
    """Cycles of the vector engine for an element; None if they depend on the dtypes only."""
    COPIES: ClassVar[bool] = False
    """Whether the vector engine is as fast as with copies: it takes one tile, and numbers."""
    SIZED: ClassVar[tuple[str, ...]] = ()
    """Tiles of one size, of which at most one is read from PSUM; those that are read come first."""
    STARTS: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """Operands that may start at other partitions than tiles do: at which ones of each 32."""
    MIN_GENERATION: ClassVar[int] = 2
    CONVERT: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Changes of arguments, by parameter."""
    RENAMED: ClassVar[Mapping[str, str]] = {}
    """Parameters of the function with another name than their field."""
    COST: ClassVar[InstructionCost]

    name: str | None = None
    """Name that the kernel gave it."""

    def check(self, core: Core) -> None:
        """Check the rules that only this instruction has."""

    def run(self, core: Core) -> None:
        """Compute."""
        raise NotImplementedError

    def cycles(self, core: Core) -> float:
        """Return the cycles of its engine; nanoseconds for DMA."""
        tile, written = self.tile, self.tiles(self.WRITES)
        engine = self.resolved_engine(core)
        if engine is not Engine.vector:
            return cost.engine_cycles(core, engine, tile)
        read = [getattr(self, name) for name in self.SIZED if name in self.READS] or [tile]
        dst = next(iter(written.values()), tile)
        return cost.vector_cycles(core, read, dst, is_copy_or_scalar=self.COPIES, rate=self.RATE)

    @property
    def tile(self) -> NkiTensor:
        """The first tile that it reads, or writes; numbers and vectors do not count."""
        tile: NkiTensor = getattr(self, self.MAIN)
        return tile

    def vector(self, name: str, *, bitwise: bool = False) -> Any:
        """Return an operand that is a number, or the elements of a vector [partitions, 1] as a column."""
        value, data = getattr(self, name), self.tile
        if not isinstance(value, NkiTensor):
            return int(value) if bitwise else as_float32(value)
        fits, operand = value.extent == (data.num_partitions, 1), self.RENAMED.get(name, name)
        require(fits, Rule.VECTOR, opcode=self.OPCODE, operand=operand, value=value, data=data)
        return value.integers().reshape(-1, 1) if bitwise else value.rows()

    def resolved_engine(self, core: Core) -> Engine:
        """Return the engine it runs on: the one asked for, or the first that has it."""
        asked: Engine = getattr(self, "engine", Engine.unknown)
        if asked in (Engine.unknown, None):
            return self.ENGINES[0]
        require(asked in self.ENGINES, Rule.ENGINE, of=self, asked=asked)
        return asked

    def tiles(self, names: tuple[str, ...]) -> dict[str, NkiTensor]:
        """Return the operands among the fields that are tiles; lists are numbered."""
        found = {}
        for name in names:
            value = getattr(self, name)
            if isinstance(value, NkiTensor):
                found[name] = value
            elif isinstance(value, list | tuple):
                found |= {f"{name}[{n}]": tile for n, tile in enumerate(value) if isinstance(tile, NkiTensor)}
        return found


def name_of(cls: type) -> str:
    """Return the name that a class has in `nki.isa`.

    >>> name_of(Engine)
    'engine'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def enumerations(kind: type[Instruction]) -> list[type[enum.Enum]]:
    """Return the enumerations that an instruction takes."""
    hints = typing.get_type_hints(kind)
    types = [hints[field.name] for field in dataclasses.fields(kind)]
    return [one for one in types if isinstance(one, type) and issubclass(one, enum.Enum)]


Kind = TypeVar("Kind", bound=Instruction)
INSTRUCTIONS: dict[str, type[Instruction]] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}
"""Functions of `nki.isa` by name."""


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
def instruction(
    source: str, formula: str = "", *, elementwise: bool = False, is_named: bool = True
) -> Callable[[type[Kind]], type[Kind]]:
    """Make a class an instruction with a function of `nki.isa`.

    Args:
        source: document that has its cost.
        formula: what `cycles` returns, for N elements in each of P partitions; empty for the common cost.
        elementwise: whether its tiles, but for vectors and those that may be missing, have one size.
        is_named: whether the function takes a name for schedules.
    """

    def made(cls: type[Kind]) -> type[Kind]:
        kind = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        kind.OPCODE = name_of(kind)
        fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
        tiles = [name for name, hint in fields.items() if "NkiTensor" in hint or "Operand" in hint]
        kind.WRITES = tuple(name for name in tiles if "dst" in name or name == "reduce_res")
        kind.READS = tuple(name for name in tiles if name not in kind.WRITES)
        if elementwise:
            kind.SIZED = tuple(name for name in (*kind.READS, *kind.WRITES) if fields[name] == "NkiTensor")
        kind.MAIN = next(name for name in (*kind.READS, *kind.WRITES) if fields[name] != "Operand")
        engines = "any" if len(kind.ENGINES) > 3 else ", ".join(engine.name for engine in kind.ENGINES)
        kind.COST = InstructionCost(engines, formula or _common_formula(kind), source)
        INSTRUCTIONS[kind.OPCODE] = kind
        FUNCTIONS[kind.OPCODE] = function_of(kind, ("name",) if is_named else ())
        return kind

    return made


def _common_formula(kind: type[Instruction]) -> str:
    """Return the cost that `Instruction.cycles` has for the engines of an instruction."""
    rate = Fraction(kind.RATE or 1).limit_denominator(9)
    elements = "N" if rate == 1 else f"{rate.numerator} N" + (f" / {rate.denominator}" if rate.denominator > 1 else "")
    texts = {Engine.vector: f"max(64, {elements})", Engine.scalar: "max(64, N)", Engine.gpsimd: "150 + N"}
    first, *others = kind.ENGINES
    return "; ".join([texts[first], *(f"{other.name}: {texts[other]}" for other in others)])


def function(one: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function of `nki.isa` that is not made of one instruction."""

    @functools.wraps(one)
    def call(*args: Any, **kwargs: Any) -> Any:
        rules.known_keywords(one.__name__, kwargs, names)
        return one(*args, **kwargs)

    names = list(inspect.signature(one).parameters)
    FUNCTIONS[one.__name__] = call
    return call


def function_of(kind: type[Instruction], last: Sequence[str] = ("name",)) -> Callable[..., NkiInstruction]:
    """Return the function that executes an instruction: its parameters are the fields, those of `last` at the end."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    own = [field for name, field in fields.items() if name not in ("name", *last)] + [fields[name] for name in last]
    operators = [field.name for field in own if "Operator" in str(field.type)]
    convert = {name: functools.partial(as_operator, parameter=name) for name in operators} | dict(kind.CONVERT)
    parameters = [
        inspect.Parameter(
            kind.RENAMED.get(field.name, field.name),
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=field.type,
        )
        for field in own
    ]
    signature = inspect.Signature(parameters, return_annotation="NkiInstruction")
    names = list(signature.parameters)
    renamed = {parameter: field for field, parameter in kind.RENAMED.items()}

    def call(*args: Any, **kwargs: Any) -> NkiInstruction:
        operands = dict(zip(names, args)) | kwargs  # noqa: B905 - the signature refuses others
        if len(operands) != len(args) + len(kwargs):
            signature.bind(*args, **kwargs)
        for name, change in convert.items():
            value = operands.get(name)
            if value is not None and type(value) is not Operator:
                operands[name] = change(value)
        for parameter, field in renamed.items():
            if field in operands:
                rules.known_keywords(kind.OPCODE, kwargs, names)
            if parameter in operands:
                operands[field] = operands.pop(parameter)
        try:
            return execute(kind(**operands))
        except TypeError:
            rules.known_keywords(kind.OPCODE, kwargs, names)
            raise

    call.__name__ = call.__qualname__ = kind.OPCODE
    call.__doc__, call.__module__ = kind.__doc__, kind.__module__
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def execute(instruction: Instruction) -> NkiInstruction:
    """Check an instruction, run it on the current core, record it, and return its handle.

    A core that traces only notes it.
    """
    core = current()
    try:
        engine = checked(instruction, core)
        if core.tape is not None:
            core.tape.note(instruction)
            return NkiInstruction((core, instruction.OPCODE))
        if core.computes:
            instruction.run(core)
    except KernelError as error:
        error.details.setdefault("instruction", instruction.OPCODE)
        raise
    if core.stream is not None:
        core.stream.append(recorded(instruction, engine, core))
    return NkiInstruction((core, instruction.OPCODE))


_CONSTANT = frozenset({bool, int, float, str, type(None), Operator})
"""Types of operands whose value says all that rules ask; members of enumerations are such, too."""


def _signature(instruction: Instruction, core: Core) -> tuple[Any, ...] | None:
    """Return what the rules of an instruction look at; None if that is more than layouts and constants."""
    parts: list[Any] = [type(instruction)]
    for value in instruction.__dict__.values():
        kind = type(value)
        if kind in _CONSTANT:
            parts += (kind, value)
        elif isinstance(value, NkiTensor):
            if (layout := value.layout or _layout(value, core)) is None:
                return None
            parts.append(layout)
        elif isinstance(value, enum.Enum):
            parts.append(value)
        elif kind is tuple and _CONSTANT.issuperset(kinds := tuple(map(type, value))):
            parts += (kinds, value)
        else:
            return None
    return tuple(parts)


def _layout(tile: NkiTensor, core: Core) -> object | None:
    """Return what stands for the place of a view in its tensor, and for the tensor; None if indices choose elements."""
    if not tile.is_indirect():
        data, storage = tile.data, tile.storage
        facts = (storage.shape, storage.format.name, storage.buffer, storage.base.numel())
        tile.layout = core.legal.setdefault((data.shape, data.stride(), tile.offset, *facts), object())
    return tile.layout


def checked(instruction: Instruction, core: Core) -> Engine:
    """Check an instruction, unless the core did on tiles of the same layouts, and return its engine."""
    signature = _signature(instruction, core)
    if signature is not None and (known := core.legal.get(signature)) is not None:
        return known
    require(core.generation >= instruction.MIN_GENERATION, Rule.GENERATION, of=instruction, core=core)
    reads, writes = instruction.tiles(instruction.READS), instruction.tiles(instruction.WRITES)
    engine = instruction.resolved_engine(core)
    for name, tile in {**reads, **writes}.items():
        _check_tile(instruction, name, tile, engine, core)
    for name in instruction.WRITES:
        if not isinstance(value := getattr(instruction, name), NkiTensor | tuple | None):
            refuse(Rule.TENSOR_OPERAND, instruction=instruction, operand=name, kind=type(value).__name__)
    if sized := {name: getattr(instruction, name) for name in instruction.SIZED}:
        rules.same_size(instruction.OPCODE, **sized)
        rules.not_both_in_psum(instruction.OPCODE, **{name: sized[name] for name in sized if name in instruction.READS})
    _check_operands(instruction, {**reads, **writes})
    instruction.check(core)
    if signature is not None:
        core.legal[signature] = engine
    return engine


def recorded(instruction: Instruction, engine: Engine, core: Core) -> Record:
    """Return an instruction as data."""
    reads, writes = instruction.tiles(instruction.READS), instruction.tiles(instruction.WRITES)
    others = {
        field.name: repr(getattr(instruction, field.name))
        for field in dataclasses.fields(instruction)
        if field.repr and field.name not in (*instruction.READS, *instruction.WRITES, "name", "engine")
    }
    indices = [index.access() for tile in (*reads.values(), *writes.values()) for index in tile.chosen_by()]
    return Record(
        instruction.OPCODE,
        engine.name,
        (*(tile.access() for tile in reads.values()), *indices),
        tuple(tile.access() for tile in writes.values()),
        instruction.cycles(core),
        kernel_line(),
        tuple(others.items()),
        instruction.name,
    )


def _check_tile(instruction: Instruction, name: str, tile: NkiTensor, engine: Engine, core: Core) -> None:
    opcode, buffer = instruction.OPCODE, tile.buffer
    anywhere = SBUF if (Engine.gpsimd,) == instruction.ENGINES else ON_CHIP
    allowed = instruction.MEMORIES.get(name.partition("[")[0], anywhere)
    require(buffer in allowed, Rule.MEMORY, opcode=opcode, operand=name, tile=tile, engine=engine, choices=allowed)
    require(engine is not Engine.gpsimd or buffer is not Buffer.psum, Rule.GPSIMD_PSUM, opcode=opcode, operand=name)
    tile.for_engine(engine.name)
    if not buffer.is_on_chip:
        return
    count = tile.num_partitions
    require(count <= rules.MAX_PARTITIONS, Rule.PARTITIONS, opcode=opcode, operand=name, partitions=count)
    require(tile.ndim <= MAX_DIMS, Rule.ACCESS_DIMS, opcode=opcode, operand=name, tile=tile, MAX_DIMS=MAX_DIMS)
    if engine is not Engine.dma:
        rules.require_partitions(opcode, name, tile, instruction.STARTS.get(name, ()))
    if engine is Engine.tensor and buffer is Buffer.psum and core.generation < 4:
        rules.require_bank(opcode, name, tile, core)


def _check_operands(instruction: Instruction, tiles: Mapping[str, NkiTensor]) -> None:
    """Check what the class says of dtypes and values."""
    opcode = instruction.OPCODE
    for name in tiles.keys() & instruction.DTYPES.keys():
        rules.dtype_among(opcode, name, tiles[name], instruction.DTYPES[name])
    dtypes = {name: tiles[name].dtype for name in instruction.SAME_DTYPE if name in tiles}
    require(len(set(dtypes.values())) <= 1, Rule.SAME_DTYPE, opcode=opcode, dtypes=dtypes)
    for name, choices in instruction.CHOICES.items():
        value = getattr(instruction, name)
        if value is not None:
            rules.is_among(opcode, name, value.name if isinstance(value, Operator) else value, choices)
