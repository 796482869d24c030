"""The parts of a divided graph in the order in which they run, each with what it reads and gives to others.

A part for the CPU is a TorchScript function, a part for a core is a segment. Sizes, lists, and numbers are computed
again in each part that reads them; on a core, and of what a core makes, they are what they were for the example inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

from .graph import CALL, Operation, Value
from .segments import Plan


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class Part:
    """Operations that run together."""

    place: Literal["core", "cpu", "call"]
    """"call" is a call of a module that TorchScript compiled."""
    operations: list[Operation]
    """In order, with the bookkeeping that they read."""
    inputs: list[Value] = dataclasses.field(default_factory=list)
    """Values of other parts, and inputs of the model."""
    outputs: list[Value] = dataclasses.field(default_factory=list)
    """Values that other parts read."""
    made: set[Value] = dataclasses.field(default_factory=set)
    """Everything that its operations make."""
    fixed: set[Value] = dataclasses.field(default_factory=set)
    """Sizes of what cores make: constants."""


def parts_of(plan: Plan) -> list[Part]:
    """Return the parts of a model; the last one makes its outputs."""
    order = {operation: index for index, operation in enumerate(plan.program.operations)}
    parts: list[Part] = []
    for level in range(max(plan.levels.values(), default=0) + 1):
        of_cpu = [o for o in plan.program.operations if plan.levels.get(o) == level and plan.segment_of(o) is None]
        for place, run in _runs(of_cpu):
            if place == "call":
                parts += _arguments(plan, run[0], order)
            parts.append(_part(plan, place, run, order))
        of_core = [o for o in plan.program.operations if plan.segment_of(o) == level and not plan.is_free(o)]
        if of_core:
            parts.append(_part(plan, "core", of_core, order))
    parts.append(_part(plan, "cpu", [], order, plan.program.outputs))
    read = {value for part in parts for value in part.inputs}
    for part in parts[:-1]:
        part.outputs = [
            value for one in part.operations for value in one.outputs if value in read and value in part.made
        ]
        part.outputs = list(dict.fromkeys(part.outputs))
    parts[-1].outputs = list(plan.program.outputs)
    return parts


def _arguments(plan: Plan, call: Operation, order: dict[Operation, int]) -> list[Part]:
    """Return the part that makes the lists and numbers which a call of a module reads, if there are any."""
    wanted = [value for value in call.inputs if value.producer is not None and plan.is_free(value.producer)]
    if not wanted:
        return []
    part = _part(plan, "cpu", [], order, wanted)
    part.made.update(wanted)
    return [part]


def _runs(operations: Sequence[Operation]) -> list[tuple[Literal["cpu", "call"], list[Operation]]]:
    """Cut operations of the CPU around calls of modules."""
    runs: list[tuple[Literal["cpu", "call"], list[Operation]]] = []
    for operation in operations:
        place: Literal["cpu", "call"] = "call" if operation.kind == CALL else "cpu"
        if place == "call" or not runs or runs[-1][0] == "call":
            runs.append((place, []))
        runs[-1][1].append(operation)
    return runs


def _part(
    plan: Plan,
    place: Literal["core", "cpu", "call"],
    operations: Sequence[Operation],
    order: dict[Operation, int],
    wanted: Iterable[Value] = (),
) -> Part:
    """Collect what the operations read: values of others, and bookkeeping, which becomes theirs."""
    own, inputs, fixed = list(operations), dict[Value, None](), set[Value]()
    inside = set(own)
    waiting = [value for operation in own for value in operation.inputs] if place != "call" else []
    waiting += wanted
    if place == "call":
        inputs.update(dict.fromkeys(v for v in own[0].inputs if not v.is_constant and v.weight is None))
    while waiting:
        value = waiting.pop()
        producer = value.producer
        if value.is_constant or value.weight is not None or producer in inside:
            continue
        if place == "core" and value in plan.static:
            continue
        if producer is not None and plan.is_fixed(producer):
            fixed.add(value)
        elif producer is not None and plan.is_free(producer):
            inside.add(producer)
            own.append(producer)
            waiting += producer.inputs
        else:
            inputs[value] = None
    own.sort(key=order.__getitem__)
    position = {value: index for index, value in enumerate(_all_values(plan))}
    made = {value for operation in operations for value in operation.outputs}
    ordered = sorted(inputs, key=position.__getitem__)
    return Part(place=place, operations=own, inputs=ordered, made=made, fixed=fixed)


def _all_values(plan: Plan) -> list[Value]:
    return [*plan.program.inputs, *(value for one in plan.program.operations for value in one.outputs)]
