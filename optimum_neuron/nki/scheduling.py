"""Schedules by hand: `kernel.with_schedule([("second", "first"), ...])` orders instructions by their names.

An edge says that the first name's instructions run after those of the others. `instruction.depends_on(other)` says so
of two instructions, and has the first wait until the other is done. Data keep their order: a schedule that turns it
around is a race, which `nki.analyze` reports, and then the order is the kernel's.
"""

from __future__ import annotations

import collections
import graphlib
import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import ConfigError, nearest
from ..hardware import documents as doc
from .core import Record
from .hazards import Race
from .timeline import Pair

Edge = tuple[str, tuple[str, ...]]


def edges_of(schedule: Iterable[Any]) -> tuple[Edge, ...]:
    """Return a schedule as names with the names that they wait for."""
    edges = [_edge(entry) for entry in schedule]
    waits: dict[str, set[str]] = collections.defaultdict(set)
    for name, before in edges:
        waits[name] |= set(before)
    done: set[str] = set()
    while ready := [name for name in waits if name not in done and not (waits[name] & waits.keys()) - done]:
        done |= set(ready)
    if left := sorted(waits.keys() - done):
        message = f"The instructions {', '.join(left)} of the schedule wait for each other."
        raise ConfigError(message, hint="Remove one of the edges.", names=left)
    return tuple(edges)


def _edge(entry: object) -> Edge:
    name, *rest = entry if isinstance(entry, tuple | list) and len(entry) == 2 else (None,)
    before = tuple(rest[0]) if rest and isinstance(rest[0], tuple | list) else tuple(rest)
    if not all(isinstance(one, str) for one in (name, *before)):
        message = f"{entry!r} is no entry of a schedule."
        hint = 'Write ("second", "first"), or ("second", ["first", "other"]).'
        raise ConfigError(message, hint=hint, entry=repr(entry))
    return str(name), before


def reordered(
    stream: Sequence[Record], edges: Sequence[Edge], pairs: Iterable[Pair], waits: Sequence[tuple[int, int]] = ()
) -> tuple[list[int], list[Race]]:
    """Return the numbers of a stream in the order of a schedule, and where it turns around what the data need.

    Args:
        waits: numbers of instructions, and of those that wait for them.
    """
    named: dict[str, list[int]] = collections.defaultdict(list)
    for number, record in enumerate(stream):
        if record.name:
            named[record.name].append(number)
    wanted = [*waits]
    for name, before in edges:
        firsts = [one for other in before for one in _of(named, other)]
        wanted += [(one, later) for later in _of(named, name) for one in firsts]
    after: dict[int, set[int]] = collections.defaultdict(set)
    for pair in pairs:
        after[pair.second].add(pair.first)
    races = {}
    for one, later in wanted:
        if _depends(after, one, later):
            races[stream[later].line, stream[one].line] = _turned(stream[later], stream[one])
        else:
            after[later].add(one)
    if races:
        return list(range(len(stream))), list(races.values())
    return _sorted(len(stream), after), []


def _of(named: dict[str, list[int]], name: str) -> list[int]:
    if name not in named:
        message = f"No instruction of the kernel has the name {name}, which its schedule has.{nearest(name, named)}"
        raise ConfigError(message, hint="Pass name= to the instruction.", name=name)
    return named[name]


def _depends(after: dict[int, set[int]], one: int, other: int) -> bool:
    """Return whether an instruction waits for another, directly or not."""
    seen, stack = set(), [one]
    while stack:
        number = stack.pop()
        if number == other:
            return True
        if number not in seen:
            seen.add(number)
            stack += after.get(number, ())
    return False


def _turned(needed: Record, waits: Record) -> Race:
    first, second = waits.name or waits.opcode, needed.name or needed.opcode
    message = f"The schedule runs {first} before {second}, whose result it needs."
    hint, tensors = "Remove the edge, or let the two use different tiles.", tuple(one.name for one in needed.writes)
    return Race("schedule", message, hint, tensors, needed.line, waits.line, doc.NKI_SCHEDULING)


def _sorted(count: int, after: dict[int, set[int]]) -> list[int]:
    """Return numbers so that each is after those that it waits for, else in their order."""
    sorter = graphlib.TopologicalSorter({number: after.get(number, ()) for number in range(count)})
    sorter.prepare()
    ready, order = [*sorter.get_ready()], list[int]()
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for number in sorter.get_ready():
            heapq.heappush(ready, number)
    return order
