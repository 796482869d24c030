"""Pairs of instructions whose order matters: what the framework orders, and what nobody does.

Engines and DMA queues run beside each other. Where one reads what another wrote, or writes what another reads or wrote,
the compiler inserts a wait: these pairs are the hazards. It inserts none where it cannot see the pair, which is a race:
tiles that a kernel placed at the same bytes, cores that share HBM without `nisa.core_barrier` between, and a schedule
by hand that turns around what the data need.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..hardware import documents as doc
from .core import Access, PlainData, Record
from .elements import offsets_of
from .timeline import Pair, box_of, elements, overlap

EXACT = 1 << 20
"""Elements up to which two accesses are compared one by one; larger ones by rows and columns."""


@dataclasses.dataclass(frozen=True)
class Hazard(PlainData):
    """Pairs of instructions at the same two lines that a wait orders."""

    kind: str
    """What depends: "read after write", "write after read" or "write after write"."""
    tensor: str
    buffer: str
    engines: tuple[str, str]
    """Engine of the first and of the second instruction."""
    first_line: str
    second_line: str
    num_pairs: int


@dataclasses.dataclass(frozen=True)
class Race(PlainData):
    """Two instructions whose order matters and that nothing orders."""

    rule: str
    """What is missing: "placement", "core_barrier" or "schedule"."""
    message: str
    hint: str
    tensors: tuple[str, ...]
    first_line: str
    second_line: str
    document: str
    """Public document that the rule is from."""


def hazards_of(stream: Sequence[Record], pairs: Iterable[Pair]) -> list[Hazard]:
    """Return the pairs of different engines, and of transfers, by line; most frequent first."""
    counts: collections.Counter[tuple[Any, ...]] = collections.Counter()
    for pair in pairs:
        one, other = stream[pair.first], stream[pair.second]
        if one.engine != other.engine or one.engine == "dma":
            access = pair.access
            counts[pair.kind, access.name, access.buffer, (one.engine, other.engine), one.line, other.line] += 1
    return [Hazard(*(*key, count)) for key, count in counts.most_common()]


def placement_races(stream: Sequence[Record]) -> list[Race]:
    """Return writes to tiles at the bytes of others that are read afterwards."""
    placed: dict[int, list[tuple[int, bool, Access]]] = collections.defaultdict(list)
    for number, record in enumerate(stream):
        for place, access in enumerate(record.accesses):
            if access.address is not None:
                placed[access.storage].append((number, place >= len(record.reads), access))
    races: dict[tuple[str, str], Race] = {}
    for mine, uses in placed.items():
        for theirs, others in placed.items():
            if mine == theirs or not _share_bytes(uses[0][2], others[0][2]):
                continue
            for number, access in ((at, access) for at, writes, access in others if writes):
                lost = next((at for at, writes, _ in uses if not writes and at > number), None)
                if lost is None or not any(writes and at < number for at, writes, _ in uses):
                    continue
                if any(writes and number < at < lost for at, writes, _ in uses):
                    continue
                first, second = stream[number].line, stream[lost].line
                races.setdefault((first, second), _placement(access, uses[0][2], first, second))
    return list(races.values())


def _placement(writer: Access, reader: Access, first: str, second: str) -> Race:
    message = f"{writer.name} is written at bytes of {reader.name}, which is read afterwards."
    hint = "Place the tiles apart, or let one end before the other begins."
    return Race("placement", message, hint, (writer.name, reader.name), first, second, doc.NKI_ALLOCATION)


def _share_bytes(one: Access, other: Access) -> bool:
    """Return whether two placed tiles have bytes in common."""
    if one.buffer != other.buffer or one.address is None or other.address is None:
        return False
    apart = one.address[0] - other.address[0]
    rows = -one.rows < apart < other.rows
    gap = one.address[1] - other.address[1]
    return rows and -one.bytes_per_partition < gap < other.bytes_per_partition


def core_races(streams: Sequence[Sequence[Record]]) -> list[Race]:
    """Return accesses of cores of one launch to the same elements without a barrier between, one of them a write."""
    uses: dict[int, list[tuple[int, int, bool, Access, str]]] = collections.defaultdict(list)
    for core, stream in enumerate(streams):
        barriers = 0
        for record in stream:
            barriers += record.opcode in ("core_barrier", "sendrecv")
            for access in record.accesses:
                if access.buffer not in ("sbuf", "psum"):
                    uses[access.storage].append((core, barriers, access in record.writes, access, record.line))
    races: dict[tuple[str, str], Race] = {}
    for own in uses.values():
        if len({core for core, *_ in own}) < 2 or not any(writes for _, _, writes, *_ in own):
            continue
        for place, (core, turn, writes, access, line) in enumerate(own):
            for other_core, other_turn, other_writes, other, other_line in own[place + 1 :]:
                if core == other_core or turn != other_turn or not (writes or other_writes):
                    continue
                if (line, other_line) not in races and share_elements(access, other):
                    races[line, other_line] = _unordered(access, line, other_line, core, other_core)
    return list(races.values())


def _unordered(access: Access, first: str, second: str, core: int, other: int) -> Race:
    message = f"Cores {core} and {other} use the same elements of {access.name}, one of them writes, and none waits."
    hint = "Put nisa.core_barrier between the two, or give each core its own part."
    return Race("core_barrier", message, hint, (access.name,), first, second, doc.NKI_LNC)


def share_elements(one: Access, other: Access) -> bool:
    """Return whether two accesses of one tensor have an element in common."""
    if not overlap(box_of(one), box_of(other)):
        return False
    if one.is_indirect or other.is_indirect or max(elements(one), elements(other)) > EXACT:
        return True
    places = (each.offset + offsets_of(zip(each.strides, each.shape, strict=True)) for each in (one, other))
    return bool(torch.isin(*places).any())
