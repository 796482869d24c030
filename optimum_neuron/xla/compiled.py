"""Compiles a recorded graph that is new: the compiler's rules, the work of a run, and an entry of the compile cache.

compiled = compile_recorded(closed, functions)
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Any

from ..base import env
from ..compiler import COMPILER_VERSION, parse_flags
from ..compiler.cache import CompileCache
from ..device import placement
from ..device.dynamo import check_with_host
from ..hardware import Target, resolve_target
from ..simulator.work import GraphWork, Step, work_on_device
from . import stored
from .tape import Closed, Operand, Operation, SlotState, read_slots, read_tape

logger = logging.getLogger(__name__)


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
    flags = parse_flags((), defaults=env.compiler_flags())
    chosen = resolve_target(flags.target).value if flags.target else placement.target()

    def produce(path: Path) -> None:
        from .recording import rebuild

        module = rebuild(operations, slots)
        downcasts = flags.implicit_integer_downcast
        check_with_host(module, chosen, allow_host_ops=(), implicit_integer_downcast=downcasts).raise_for_refusals()
        stored.write(path, module, _located(work_on_device(module)), name=f"graph {closed.hash[:8]}", target=chosen)

    module, path, was_cached = _stored(_fields(closed, chosen, flags), produce)
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


def _fields(closed: Closed, target: Target, flags: Any) -> dict[str, Any]:
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
    if env.no_compile_cache():
        path = Path(tempfile.mkdtemp(prefix="optimum-neuron-xla-")) / "model.neff"
        produce(path)
        return "", path, False
    cache = CompileCache()
    result = cache.get_or_compile(fields, produce)
    name = result.choice.value
    if result.hit:
        logger.info("||NEURON_CACHE||: Using a cached neff at %s", result.path)
    else:
        logger.info("||NEURON_CACHE||: Compile cache path: %s", cache.cache_path)
        logger.info("Compiler status PASS")
    return name.rpartition("/")[2], result.path, result.hit


def _located(work: GraphWork) -> GraphWork:
    """Without source lines: an entry of the cache is the same wherever the script lies."""
    steps: tuple[Step, ...] = tuple(dataclasses.replace(step, source_line="") for step in work.steps)
    return dataclasses.replace(work, steps=steps)


def _inputs(operations: list[Operation], slots: list[SlotState]) -> list[Input]:
    """Inputs in the order in which they are read."""
    found: dict[int, Input] = {}

    def visit(value: Any, operation: Operation) -> None:
        if isinstance(value, Operand) and slots[value.slot].is_input:
            found.setdefault(
                value.slot,
                Input(shape=slots[value.slot].shape or value.size, operator=operation.name, place=operation.place),
            )
        elif isinstance(value, list):
            for item in value:
                visit(item, operation)

    for operation in operations:
        for value in operation.arguments:
            visit(value, operation)
    return list(found.values())
