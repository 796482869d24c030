"""Compiles a recorded graph that is new: the compiler's rules, the work of a run, and an entry of the compile cache.

compiled = compile_recorded(closed, functions)
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import env
from ..compiler import COMPILER_VERSION, CompilerFlags, parse_flags
from ..compiler.cache import CompileCache
from ..device import placement
from ..device.dynamo import check_with_host
from ..errors import ConfigError
from ..hardware import Target, resolve_target
from ..simulator.work import GraphWork, Step, work_on_device
from . import stored
from .recording import rebuild
from .tape import Closed, Operation, SlotState, operands, read_slots, read_tape

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)

_ON_HOST = "on the host, with `.cpu()` tensors"
_num_compiled = 0
_cache: tuple[str, bool] | None = None
"""Address that `initialize_cache` chose, and whether it is only read."""


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Choose the compile cache of this process, before its first graph.

    Args:
        path: folder or fsspec URL.
        readonly: store nothing there.

    Raises:
        ConfigError: a graph was compiled before.
    """
    global _cache
    if _num_compiled:
        hint = "Call initialize_cache before the first sync, or set NEURON_COMPILE_CACHE_URL."
        raise ConfigError("The compile cache was used before it was initialized.", hint=hint, path=path)
    _cache = path, readonly


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """A tensor that a graph reads."""

    shape: tuple[int, ...]
    operator: str
    """The operator that reads it first."""
    place: int
    """Number of its place in the program."""

    def __str__(self) -> str:
        return f"{list(self.shape)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledGraph:
    """One graph: what it computes, and where it came from."""

    hash: str
    module: str
    """Name of its entry in the compile cache, such as "MODULE_0123"; empty without a cache."""
    work: GraphWork
    num_operators: int
    num_inputs: int
    num_outputs: int
    operators: int
    """Hash of the names of its operators in order, which graphs of other shapes share."""
    inputs: tuple[Input, ...]
    was_cached: bool
    """Whether the compile cache had it."""


def compile_recorded(closed: Closed, functions: ctypes.CDLL) -> CompiledGraph:
    """Compile the graph that ended last, or find it in the compile cache.

    Raises:
        UnsupportedOperatorError: the target refuses operators of it; each is named with its module and line.
    """
    operations = read_tape(functions, closed.num_words)
    slots = read_slots(functions, closed.num_slots)
    target, flags = _settings()

    def produce(path: Path) -> None:
        module = rebuild(operations, slots)
        stored.write(path, module, _checked(module, target, flags), name=f"graph {closed.hash[:8]}", target=target)

    module, path, was_cached = _stored(_fields(closed, target, flags), produce)
    return CompiledGraph(
        hash=closed.hash,
        module=module,
        work=dataclasses.replace(stored.read_work(path), name=f"graph {closed.hash[:8]}"),
        num_operators=closed.num_operators,
        num_inputs=closed.num_inputs,
        num_outputs=closed.num_outputs,
        operators=hash(tuple(operation.name for operation in operations)),
        inputs=tuple(_inputs(operations, slots)),
        was_cached=was_cached,
    )


def compile_operator(operation: Operation, slots: Sequence[SlotState]) -> GraphWork:
    """Compile one operator, which nothing keeps, and return its work.

    Raises:
        UnsupportedOperatorError: the target refuses it.
    """
    return _checked(rebuild([operation], slots), *_settings())


def _settings() -> tuple[Target, CompilerFlags]:
    flags = parse_flags((), defaults=env.compiler_flags())
    return resolve_target(flags.target).value if flags.target else placement.target(), flags


def _checked(module: fx.GraphModule, target: Target, flags: CompilerFlags) -> GraphWork:
    """The work of a graph that the target takes; without source lines, so that an entry of the cache is the same
    wherever the script lies.
    """
    downcasts = flags.implicit_integer_downcast
    checks = check_with_host(module, target, allow_host_ops=(), implicit_integer_downcast=downcasts)
    checks.raise_for_refusals(on_host=_ON_HOST)
    work = work_on_device(module)
    steps: tuple[Step, ...] = tuple(dataclasses.replace(step, source_line="") for step in work.steps)
    return dataclasses.replace(work, steps=steps)


def _fields(closed: Closed, target: Target, flags: CompilerFlags) -> dict[str, Any]:
    """Everything that decides a compile, for the key of its entry."""
    return {
        "compiler_version": COMPILER_VERSION,
        "front_end": "xla",
        "graph": closed.hash,
        "target": target.name,
        "auto_cast": flags.auto_cast,
        "auto_cast_type": flags.auto_cast_type,
        "optlevel": flags.optlevel,
        "implicit_integer_downcast": list(flags.implicit_integer_downcast),
    }


def _stored(fields: dict[str, Any], produce: Any) -> tuple[str, Path, bool]:
    """The name of the entry, its NEFF, and whether it was there."""
    global _num_compiled
    _num_compiled += 1
    url, is_read_only = _cache or (None, False)
    cache = CompileCache(url)
    if env.no_compile_cache() or (is_read_only and cache.lookup(fields).value is None):
        path = Path(tempfile.mkdtemp(prefix="optimum-neuron-xla-")) / "model.neff"
        produce(path)
        return "", path, False
    result = cache.get_or_compile(fields, produce)
    name = result.choice.value
    if result.hit:
        logger.info("||NEURON_CACHE||: Using a cached neff at %s", result.path)
    else:
        logger.info("||NEURON_CACHE||: Compile cache path: %s", cache.cache_path)
        logger.info("Compiler status PASS")
    return name.rpartition("/")[2], result.path, result.hit


def _inputs(operations: list[Operation], slots: list[SlotState]) -> list[Input]:
    """Inputs in the order in which they are read."""
    found: dict[int, Input] = {}
    for operation in operations:
        for one in operands(operation.arguments):
            if slots[one.slot].is_input:
                shape = slots[one.slot].shape or one.size
                found.setdefault(one.slot, Input(shape=shape, operator=operation.name, place=operation.place))
    return list(found.values())
