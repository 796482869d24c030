"""When the engines run the instructions of a recorded stream: each in its order, and all as early as their data allow.

An engine executes its instructions in program order. One waits for what it reads, for what it overwrites, and for room
for a new tile on the chip. A result is there some cycles after its engine is free again, and an instruction of the same
engine that reads it waits for that; an engine that waited for another one starts `dependent_instruction_cycles` later.
Transfers share the rate of the DMA engines in any order, because they have many queues; the result of one is there
`dma_start_ns` after its bytes were moved. The compiler may reorder instructions and place tiles worse; this module does
neither.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..hardware import CoreTiming, Target
from .core import Access, Record
from .dtypes import FORMATS
from .memory import Buffer

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "dma", "sync")
"""Engines, in the order in which they are shown."""
RAW, WAR, WAW = "read after write", "write after read", "write after write"
Box = tuple[int, int, int, int]
"""Rows and elements of rows that an access covers: first and end of both."""


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One instruction in time."""

    record: Record
    start_ns: float
    busy_ns: float
    """Time that its engine cannot do anything else."""
    end_ns: float
    """When its results are there."""
    has_waited: bool
    """Whether it waited for data or room."""


def box_of(access: Access) -> Box:
    """Return the rows of a tensor, and the elements of them, that an access covers."""
    row = max(1, access.row)
    if access.is_indirect:
        return 0, 2**62, 0, row
    first, start = divmod(access.offset, row)
    rows = 0
    end = start
    for size, stride in zip(access.shape, access.strides, strict=True):
        if stride >= row and stride % row == 0:
            rows += (size - 1) * (stride // row)
        else:
            end += (size - 1) * stride
    if end >= row:
        return first, first + rows + end // row + 1, 0, row
    return first, first + rows + 1, start, end + 1


def overlap(one: Box, other: Box) -> bool:
    """Return whether two boxes have an element in common."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def contains(outer: Box, inner: Box) -> bool:
    """Return whether a box has all elements of another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1] and outer[2] <= inner[2] and inner[3] <= outer[3]


class Pair(NamedTuple):
    """Two instructions of a stream, by number, that depend on each other."""

    kind: str
    first: int
    second: int
    access: Access
    """What the second one accesses."""


def pairs_of(stream: Sequence[Record]) -> list[Pair]:
    """Return the pairs of instructions that depend on each other directly, of one engine too."""
    written: dict[int, dict[Box, int]] = collections.defaultdict(dict)
    read: dict[int, dict[Box, dict[int, None]]] = collections.defaultdict(dict)
    found = []
    for number, record in enumerate(stream):
        boxes = [(access, box_of(access)) for access in record.accesses]
        for place, (access, box) in enumerate(boxes):
            writes = place >= len(record.reads)
            kind, earlier = WAW if writes else RAW, written[access.storage].items()
            found += [Pair(kind, one, number, access) for other, one in earlier if overlap(box, other)]
            if writes:
                readers = [ones for other, ones in read[access.storage].items() if overlap(box, other)]
                found += [Pair(WAR, one, number, access) for ones in readers for one in ones]
        for access, box in boxes[: len(record.reads)]:
            read[access.storage].setdefault(box, {})[number] = None
        for access, box in boxes[len(record.reads) :]:
            for uses in (written[access.storage], read[access.storage]):
                for other in [other for other in uses if contains(box, other)]:
                    del uses[other]
            written[access.storage][box] = number
    return found


def _done_ns(pair: Pair, first: Event, engine: str) -> float:
    """Return when an instruction of an engine may follow another one on which it depends."""
    if pair.kind == RAW or (pair.kind == WAW and engine != first.record.engine) or first.record.engine == "dma":
        return first.end_ns
    return first.start_ns + first.busy_ns


class _Room:
    """Bytes of each partition of one memory: a new tile waits until earlier ones are read for the last time."""

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self._ending: list[tuple[float, int]] = []

    def take(self, needed: int) -> float:
        """Take room, and return when it is there; a tile that never fits is not held up."""
        when = 0.0
        while self.free < needed and self._ending:
            end_ns, size = heapq.heappop(self._ending)
            self.free += size
            when = max(when, end_ns)
        self.free -= needed
        return when

    def give_back(self, end_ns: float, size: int) -> None:
        heapq.heappush(self._ending, (end_ns, size))


class _Transfers:
    """When the DMA engines are busy: a transfer takes the first gap after its data are there."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []

    def place(self, ready: float, length: float) -> float:
        """Take a gap, and return its start."""
        place, start = bisect.bisect_right(self._ends, ready), ready
        while place < len(self._starts) and self._starts[place] < start + length:
            start = max(start, self._ends[place])
            place += 1
        if place and self._ends[place - 1] == start:
            self._ends[place - 1] = start + length
        else:
            self._starts.insert(place, start)
            self._ends.insert(place, start + length)
        return start


def last_uses(stream: Sequence[Record]) -> dict[int, int]:
    """Return the last instruction of each tensor, by the tensor's number."""
    return {access.storage: number for number, record in enumerate(stream) for access in record.accesses}


def schedule(
    stream: Sequence[Record],
    target: Target,
    pairs: Iterable[Pair] | None = None,
    waits: Mapping[int, Sequence[int]] | None = None,
) -> list[Event]:
    """Return when each instruction runs on the target's engines.

    Args:
        pairs: those of the stream that depend on each other; None to find them.
        waits: by number of an instruction, the earlier ones that it waits for although its data do not need them.
    """
    core, timing = target.core, target.timing
    assert timing is not None and core.gpsimd is not None
    assert core.sbuf_bytes and core.sbuf_partitions and core.psum_bytes and core.psum_partitions
    clocks = {name: getattr(core, name).clock_ghz for name in ("tensor", "vector", "scalar", "gpsimd")}
    clocks["sync"] = clocks["gpsimd"]
    rooms = {
        "sbuf": _Room(core.sbuf_bytes // core.sbuf_partitions),
        "psum": _Room(core.psum_bytes // core.psum_partitions),
    }
    free: dict[str, float] = collections.defaultdict(float)
    transfers = _Transfers()
    needs: dict[int, list[Pair]] = collections.defaultdict(list)
    for pair in pairs_of(stream) if pairs is None else pairs:
        needs[pair.second].append(pair)
    known: set[int] = set()
    last = last_uses(stream)
    events: list[Event] = []
    for number, record in enumerate(stream):
        before = waits.get(number, ()) if waits else ()
        ready = max((events[other].end_ns for other in before if other < number), default=0.0)
        for access in record.accesses:
            if access.storage not in known and access.buffer in rooms:
                ready = max(ready, rooms[access.buffer].take(access.bytes_per_partition))
            known.add(access.storage)
        ready = max([ready, *(_done_ns(pair, events[pair.first], record.engine) for pair in needs.pop(number, ()))])
        if record.engine == "dma":
            busy = max(record.cycles - timing.dma_start_ns, 0.0)
            start = transfers.place(ready, busy)
            event = Event(record, start, busy, start + record.cycles, ready > 0)
        else:
            event = _placed(record, ready, free, clocks[record.engine], timing)
        events.append(event)
        for access in {access.storage: access for access in record.accesses}.values():
            if last[access.storage] == number and access.buffer in rooms:
                rooms[access.buffer].give_back(event.end_ns, access.bytes_per_partition)
    return events


def _placed(record: Record, ready: float, free: dict[str, float], clock_ghz: float, timing: CoreTiming) -> Event:
    """Return when an instruction runs that has its data at `ready`, and note when its engine is free again.

    An engine that waits for itself starts when its result is there; one that waits for another, later.
    """
    engine = record.engine
    waited = ready > free[engine]
    own = free[engine] + result_cycles(engine, timing) / clock_ghz
    start = (
        (ready + timing.dependent_instruction_cycles / clock_ghz if ready > own else ready) if waited else free[engine]
    )
    busy = record.cycles / clock_ghz
    free[engine] = start + busy
    return Event(record, start, busy, start + busy + result_cycles(engine, timing) / clock_ghz, waited)


def result_cycles(engine: str, timing: CoreTiming) -> float:
    """Return how much later a result is there than its engine is free again."""
    if engine in ("gpsimd", "sync"):
        return 0
    return (
        timing.scalar_dependent_cycles - timing.min_interval_cycles if engine == "scalar" else timing.sram_access_cycles
    )


def busy_us(events: Iterable[Event]) -> dict[str, float]:
    """Return how long each engine is busy; engines that are not are left out."""
    busy_ns: dict[str, float] = collections.defaultdict(float)
    for event in events:
        busy_ns[event.record.engine] += event.busy_ns
    return {engine: busy_ns[engine] / 1e3 for engine in ENGINES if busy_ns[engine]}


def elements(access: Access) -> int:
    """Return the elements that an access covers."""
    return math.prod(access.shape)


def hbm_bytes(record: Record) -> int:
    """Return the bytes that an instruction reads from and writes to HBM."""
    return sum(
        elements(access) * FORMATS[access.dtype].size_bytes
        for access in record.accesses
        if access.buffer not in (Buffer.sbuf.value, Buffer.psum.value)
    )
