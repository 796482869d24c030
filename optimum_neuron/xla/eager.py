"""Eager mode of the device "xla": each operator is a program of its own, compiled once for its shapes and attributes.

for name, work in run(closed, functions):
    ...  # one run each
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..simulator.work import GraphWork
from . import metrics
from .compiled import compile_operator
from .recording import is_view, overload_of
from .tape import Closed, Operand, Operation, SlotState, operands, read_slots, read_tape

_SCALAR_BYTES = 8
_SPECIAL = (0.0, 1.0, -1.0)

_enabled = False
_programs: dict[tuple[Any, ...], GraphWork] = {}


def is_enabled() -> bool:
    """Return whether each operator is a program of its own."""
    return _enabled


def set_enabled(enabled: bool) -> None:
    """Let each operator be a program of its own, or all between two syncs be one graph."""
    global _enabled
    _enabled = enabled


def run(closed: Closed, functions: ctypes.CDLL) -> Iterator[GraphWork]:
    """Count the operators that were recorded, and yield the work of each; new ones are compiled.

    Raises:
        UnsupportedOperatorError: the target refuses an operator.
    """
    slots = read_slots(functions, closed.num_slots)
    took_ns = (closed.ended_ns - closed.began_ns) / max(closed.num_operators, 1)
    for operation in read_tape(functions, closed.num_words):
        if is_view(overload_of(operation.name)):
            continue
        key = (operation.name, *_structure(operation.arguments, {}))
        if key not in _programs:
            began_ns = time.perf_counter_ns()
            work = compile_operator(operation, _alone(operation, slots))
            _programs[key] = dataclasses.replace(work, name=f"{operation.name} {len(_programs)}")
            metrics.add_sample("EagerOpCompileTime", time.perf_counter_ns() - began_ns, "time")
        metrics.add_sample("EagerOpExecuteTime", took_ns, "time")
        yield _programs[key]


def count_constant(size_bytes: int, took_ns: int) -> None:
    """Count a number of the host that came to the device: such a constant is an operator too."""
    if size_bytes > _SCALAR_BYTES:
        return
    key = ("constant", size_bytes)
    if key not in _programs:
        _programs[key] = GraphWork(name="constant", steps=())
        metrics.add_sample("EagerOpCompileTime", took_ns, "time")
    metrics.add_sample("EagerOpExecuteTime", took_ns, "time")


def _structure(values: Sequence[Any], slots: dict[int, int]) -> Iterator[Any]:
    """What decides a compile of an operator: numbers of the program are data."""
    for value in values:
        if isinstance(value, Operand):
            yield dataclasses.replace(value, slot=slots.setdefault(value.slot, len(slots)))
        elif isinstance(value, list):
            yield tuple(_structure(value, slots))
        else:
            yield "data" if isinstance(value, float) and value not in _SPECIAL else value


def _alone(operation: Operation, slots: Sequence[SlotState]) -> list[SlotState]:
    """The storages of a graph of this operator alone: what it takes is an input, what it makes a result."""
    taken, made = ({one.slot for one in operands(values)} for values in (operation.arguments, operation.results))
    return [
        dataclasses.replace(state, is_input=slot in taken, is_output=slot in made or slot in taken and state.is_output)
        for slot, state in enumerate(slots)
    ]
