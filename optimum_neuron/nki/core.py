"""The core that a kernel runs on, and the line of the kernel that speaks to it.

`current()` is the core of the kernel that runs in this thread; instructions execute on it. A core knows its target's
limits, its rank in the grid, its engines' registers, and, if it records, the stream of what it executed.

Kernels run eagerly, one instruction after the other: this module has no time and no order between engines.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import inspect
import linecache
import string
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol

import torch

from ..base import env
from ..base.core import Choice
from ..errors import KernelError
from ..hardware import CoreSpec, CoreTiming, Target, resolve_target, target_of_kernels
from .memory import Buffer, Storage
from .random_numbers import Xorwow
from .rulebook import Rule as Rule
from .world import World

DEFAULT_PLATFORM = "trn3"
"""Target without an environment variable, as the vendor documents for its simulator."""
CONTROL_FLOW = "Neuron docs, NKI, language guide, control flow"
_HERE, _KERNELS = str(Path(__file__).parent), str(Path(__file__).parent / "kernels")
_FRONT_ENDS = ("nki", "neuronxcc")


class PlainData:
    """A dataclass of what is known of a kernel, which pages and `--json` show."""

    HIDDEN: ClassVar[tuple[str, ...]] = ()
    """Fields that are not shown."""
    COMPUTED: ClassVar[tuple[str, ...]] = ()
    """Properties that are shown, too."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
        names = [field.name for field in fields if field.name not in self.HIDDEN]
        return {name: _plain(getattr(self, name)) for name in (*names, *self.COMPUTED)}


def _plain(value: Any) -> Any:
    if isinstance(value, PlainData | Choice):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple | list) else value


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One executed instruction, as data: nothing of it is Python that runs."""

    opcode: str
    """Name in `nki.isa`."""
    engine: str
    """Engine that ran it: tensor, vector, scalar, gpsimd, dma or sync."""
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    cycles: float
    """Cycles of its engine; nanoseconds for DMA."""
    line: str
    parameters: tuple[tuple[str, str], ...]
    """Its other operands, as text."""
    name: str | None = None
    """Name that the kernel gave it."""

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What it reads, then what it writes."""
        return (*self.reads, *self.writes)


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """A part of one tensor: where an instruction reads or writes."""

    storage: int
    name: str
    buffer: str
    dtype: str
    offset: int
    """First element."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Steps, in elements."""
    row: int
    """Elements of the tensor for each index of its first dimension."""
    bytes_per_partition: int
    """Bytes of the whole tensor in each index of its first dimension."""
    created: str
    """Line of the kernel that made the tensor; empty for an argument."""
    is_indirect: bool = False
    """Whether indices in memory choose the elements."""
    address: tuple[int, int] | None = None
    """First partition and byte of the whole tensor, if the kernel placed it."""
    rows: int = 0
    """Indices of the tensor's first dimension: partitions on the chip."""


@dataclasses.dataclass(frozen=True, slots=True)
class Unwritten(PlainData):
    """A read of memory that nothing wrote."""

    line: str
    tensor: str
    num_elements: int
    """Elements that it read and nothing wrote."""


@dataclasses.dataclass
class Grid:
    """What the cores of one launch share."""

    shape: tuple[int, ...]
    """Sizes of the grid; () for one core."""
    shared: dict[Any, Storage] = dataclasses.field(default_factory=dict)
    """Tensors in shared HBM, by name or by order of creation."""
    arrivals: dict[int, int] = dataclasses.field(default_factory=dict)
    """Barriers that each core reached."""
    mail: dict[tuple[int, int, int], deque[torch.Tensor]] = dataclasses.field(default_factory=dict)
    """Tiles on their way, by pipe, sender and receiver."""


class Tape(Protocol):
    """Where a core that traces notes what it does not do; `streams/tracing.py` has one."""

    def allocate(self, storage: Storage) -> None: ...
    def write(self, tensor: Any, values: torch.Tensor) -> None: ...
    def copy(self, tensor: Any, source: Any) -> None: ...
    def note(self, instruction: Any) -> None: ...
    def loop(self, numbers: range) -> Sequence[int]: ...


@dataclasses.dataclass
class Core:
    """A simulated core while a kernel runs on it."""

    target: Target
    grid: Grid = dataclasses.field(default_factory=lambda: Grid(shape=()))
    """The launch it belongs to."""
    rank: tuple[int, ...] = ()
    """Its place in the grid."""
    precise: bool = True
    """Whether values are rounded to their dtypes."""
    computes: bool = True
    """Whether instructions compute; without, they are only checked and recorded."""
    strict: bool = False
    """Whether a read of memory that nothing wrote is an error."""
    stream: list[Record] | None = None
    """What it executed; None if it does not record."""
    waits: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    """Instructions that others wait for, because the kernel asked for it: both by number in the stream."""
    loops: tuple[object, ...] = ()
    """Loops of the device that run, outermost first."""
    unwritten: list[Unwritten] = dataclasses.field(default_factory=list)
    """Reads of memory that nothing wrote."""
    legal: dict[tuple[Any, ...], Any] = dataclasses.field(default_factory=dict)
    """What was checked: engines of instructions by the layouts of their operands, and sizes of new tiles."""
    registers: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    """Accumulators of the engines, by engine: one float32 for each partition."""
    generators: dict[str, Xorwow] = dataclasses.field(default_factory=dict)
    """Random numbers, by engine."""
    number: int = 0
    """Its number among all cores of the launch."""
    rank_id: int = 0
    world: World = dataclasses.field(default_factory=World)
    """All ranks of the launch."""
    num_collectives: dict[tuple[bool, tuple[int, ...], tuple[int, ...]], int] = dataclasses.field(default_factory=dict)
    """Collectives that it called, by group of ranks."""
    num_shared: int = 0
    """Tensors in shared HBM that it created so far."""
    ignores_addresses: bool = False
    """Whether tiles that the kernel placed are left to the compiler, as `nki.compiler.force_auto_alloc` asks."""
    platform_rules: bool = False
    """Whether what the hardware's compiler does not take is refused."""
    exchanged: dict[int, str] = dataclasses.field(default_factory=dict)
    """Lines of the collectives that read or wrote a tensor, by its number, where the hardware's rules hold."""
    pending: Any = None
    """A matmul of the older API whose place is not known yet; it runs before the next instruction."""
    redirected: dict[int, tuple[int, Access]] = dataclasses.field(default_factory=dict)
    """Results of the older API that were assigned: by tensor, the instruction and the result's own place."""
    warns: bool = True
    """Whether a read of memory that nothing wrote is noted, with a warning."""
    tape: Tape | None = None
    """Where instructions go that are traced and not run; tensors then have no memory."""
    line: str = ""
    """Line of the instruction that is replayed; empty where the kernel's own Python runs."""

    @property
    def spec(self) -> CoreSpec:
        """Limits of the core."""
        return self.target.core

    @property
    def timing(self) -> CoreTiming:
        """Cycle costs of the core."""
        timing = self.target.timing
        assert timing is not None
        return timing

    @property
    def generation(self) -> int:
        """2 for NeuronCore-v2, and so on."""
        return self.spec.generation

    def partition_bytes(self, buffer: Buffer) -> int:
        """Return the bytes that one partition of a memory has."""
        size, partitions = (
            (self.spec.sbuf_bytes, self.spec.sbuf_partitions)
            if buffer is Buffer.sbuf
            else (self.spec.psum_bytes, self.spec.psum_partitions)
        )
        assert size is not None and partitions is not None
        return size // partitions

    def bank_bytes(self) -> int:
        """Return the bytes that one partition of a PSUM bank has."""
        banks = self.spec.psum_banks
        assert banks is not None
        return self.partition_bytes(Buffer.psum) // banks


_CURRENT: contextvars.ContextVar[Core | None] = contextvars.ContextVar("nki_core", default=None)


def current() -> Core:
    """Return the core of the kernel that runs."""
    core = _CURRENT.get()
    if core is None:
        message = "Functions of nki.isa and nki.language run inside a kernel, and none is running."
        raise KernelError(message, hint="Call them in a function with @nki.jit.", rule="outside")
    return core


def target_core() -> Core:
    """Return the core of the kernel that runs, or one of the default target where none does."""
    return _CURRENT.get() or Core(default_target())


def running() -> bool:
    """Return whether a kernel runs in this thread."""
    return _CURRENT.get() is not None


@contextlib.contextmanager
def use(core: Core) -> Iterator[Core]:
    """Run a block on a core."""
    token = _CURRENT.set(core)
    try:
        yield core
    finally:
        _CURRENT.reset(token)


def default_target(platform: str | None = None) -> Target:
    """Return the target of kernels: NEURON_PLATFORM_TARGET_OVERRIDE, a kernel's own, `kernels_for`'s, or trn3."""
    named, around = env.nki_platform() or platform, target_of_kernels()
    target = around if around is not None and not named else resolve_target(named or DEFAULT_PLATFORM).value
    if target.timing is None:
        message = f"{target.name} has no NKI: kernels need NeuronCore-v2 or newer."
        raise KernelError(message, hint="Set NEURON_PLATFORM_TARGET_OVERRIDE to trn1, trn2 or trn3.", rule="target")
    return target


@functools.cache
def _is_ours(file: str) -> bool:
    path = Path(file)
    in_sdk = any(part in _FRONT_ENDS for part in path.parts[:-1]) and "sdk" in path.parts
    return (file.startswith(_HERE) and not file.startswith(_KERNELS)) or in_sdk


def kernel_line() -> str:
    """Return the line of the kernel that called, as `file.py:12`."""
    core = _CURRENT.get()
    if core is not None and core.line:
        return core.line
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class _Text(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "list":
            names = (one.name if hasattr(one, "name") else str(one) for one in value)
            return ", ".join(sorted(names))
        return str(super().format_field(value, format_spec))


def require(holds: object, rule: Rule, line: str = "", **values: Any) -> None:
    """Raise the error of a broken rule unless it holds."""
    if not holds:
        refuse(rule, line, **values)


def refuse(rule: Rule, line: str = "", **values: Any) -> NoReturn:
    """Raise the error of a broken rule, with the line of the kernel.

    Args:
        rule: the rule.
        line: the line; empty for the one that runs.
        **values: what its texts name, and other details of the error.
    """
    place, texts = line or kernel_line(), _Text()
    details = {name: value for name, value in values.items() if not hasattr(value, "__dict__")}
    for _, field, _, _ in texts.parse(rule.message):
        if field:
            value, _ = texts.get_field(field, (), values)
            name = "tensor" if field == "of.name" else field.removeprefix("of.").replace(".", "_")
            details[name] = value.shape if hasattr(value, "shape") else value
    if rule.kind in ("branch", "loop"):
        details["document"] = CONTROL_FLOW
    message, hint = (texts.vformat(text, (), values) for text in (rule.message, rule.remedy))
    raise KernelError(message + quoted(place), hint=hint, rule=rule.kind, line=place, **details)


def first_line(function: Callable[..., Any]) -> str:
    """Return the line at which a function of Python begins, as `file.py:12`; empty for others."""
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType):
        return ""
    return f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno}"


def quoted(line: str) -> str:
    """Return a line of a kernel with its text, for messages."""
    source = source_of(line)
    return f"\n  {Path(line).name}: {source}" if source else ""


def source_of(line: str) -> str:
    """Return the text of a line, as `file.py:12`; empty if there is none."""
    file, _, number = line.rpartition(":")
    return linecache.getline(file, int(number)).strip() if file else ""
