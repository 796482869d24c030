"""What the public guides advise, for the instructions of a kernel that do otherwise.

Each rule looks at one instruction and has the document that publishes it. Advice is a count with the line that costs
most: whether to follow it is the author's decision. `contention` looks at pairs of a timeline: what engines that run
beside each other take from each other, banks of PSUM and ports of both memories.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..hardware import CoreSpec, CoreTiming, documents as doc
from .core import Access, PlainData, Record
from .cost import run_bytes
from .dtypes import FORMATS
from .timeline import ENGINES, Event, elements

LANES = 128
_MATMULS = ("nc_matmul", "nc_matmul_mx")
_WRITERS = (*_MATMULS, "nc_transpose")
_PIPELINES = ("vector", "scalar")
"""Engines whose accesses take as long to start as some elements take."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice(PlainData):
    """One advice of the guides, for all instructions that it concerns."""

    topic: str
    text: str
    engine: str
    """Engine that would gain."""
    num_instructions: int
    busy_us: float
    """Time that their engine is busy with them."""
    line: str
    """Line of the kernel where most of the time is."""
    source: str
    """Public document."""


class _Rule(NamedTuple):
    topic: str
    text: str
    source: str
    applies: Callable[[Record, CoreTiming], bool]


def _per_partition(access: Access) -> int:
    return elements(access) // max(1, access.shape[0])


def _step_bytes(access: Access) -> int:
    return access.strides[-1] * FORMATS[access.dtype].size_bytes if access.shape[-1] > 1 else 0


RULES = (
    _Rule(
        "moving columns",
        "Move at least as many columns in a matmul as its shortest time covers, 512 at best.",
        doc.NKI_V2,
        lambda one, timing: one.opcode in _MATMULS and _per_partition(one.writes[0]) < timing.matmul_min_cycles,
    ),
    _Rule(
        "contracted rows",
        "Contract 128 partitions in a matmul: fewer leave rows of the array idle.",
        doc.NKI_V2,
        lambda one, timing: one.opcode in _MATMULS and one.reads[0].shape[0] < LANES,
    ),
    _Rule(
        "stationary columns",
        "Use 128 stationary columns in a matmul: fewer leave columns of the array idle.",
        doc.NKI_V2,
        lambda one, timing: one.opcode in _MATMULS and one.writes[0].shape[0] < LANES,
    ),
    _Rule(
        "float32 matmul",
        "Multiply in bfloat16 where its precision is enough: float32 takes 4 times as long.",
        doc.NKI_V2,
        lambda one, timing: one.opcode in _MATMULS and one.reads[1].dtype == "float32",
    ),
    _Rule(
        "DMA size",
        "Move at least 2 KiB at a stretch in each partition; 4 KiB saturate the engines.",
        doc.NKI_DMA,
        lambda one, timing: one.engine == "dma" and min(map(run_bytes, one.accesses)) < timing.dma_recommended_bytes,
    ),
    _Rule(
        "partitions",
        "Use all 128 partitions: an instruction takes as long for one as for all.",
        doc.NKI_V2,
        lambda one, timing: (
            one.engine in (*_PIPELINES, "gpsimd") and one.writes != () and one.writes[0].shape[0] < LANES
        ),
    ),
    _Rule(
        "short instructions",
        "Give an instruction more elements in a partition: the start of its access takes longer than they do.",
        doc.NKI_V2,
        lambda one, timing: (
            one.engine in _PIPELINES and max(map(_per_partition, one.accesses)) < timing.sram_access_cycles
        ),
    ),
    _Rule(
        "strides",
        "Keep the step between elements below 16 bytes: a larger one halves the rate of SBUF.",
        doc.NKI_V2,
        lambda one, timing: (
            one.engine in _PIPELINES and any(_step_bytes(each) > timing.stride_limit_bytes for each in one.accesses)
        ),
    ),
)
"""The rules, in the order in which an instruction is looked at."""


def advise(events: Sequence[Event], timing: CoreTiming) -> list[Advice]:
    """Return what the guides advise about single instructions."""
    found = []
    for rule in RULES:
        concerned = [one for one in events if one.record.reads and rule.applies(one.record, timing)]
        for engine in ENGINES:
            own = [(one.record, one.busy_ns) for one in concerned if one.record.engine == engine]
            if own:
                found.append(advice_of(rule.topic, rule.text, engine, own, rule.source))
    return found


def advice_of(topic: str, text: str, engine: str, concerned: Sequence[tuple[Record, float]], source: str) -> Advice:
    """Return advice about instructions and how long each takes its engine, or has it wait, in nanoseconds."""
    lines: dict[str, float] = {}
    for record, ns in concerned:
        lines[record.line] = lines.get(record.line, 0.0) + ns
    return Advice(
        topic=topic,
        text=text,
        engine=engine,
        num_instructions=len(concerned),
        busy_us=sum(lines.values()) / 1e3,
        line=max(lines, key=lambda line: lines[line]),
        source=source,
    )


_BANKS = "Write to another bank of PSUM while a result is read: eight tiles in turn let matmuls and copies overlap."
_GROUPS = "Place tiles that are accumulated at the same time in banks of their own."
_PSUM_PORT = "Let the vector and the scalar engine use PSUM one after the other: they share its port."
_SBUF_PORT = "Give GpSimd other work while the vector engine runs: they share a port of SBUF."


def contention(events: Sequence[Event], spec: CoreSpec) -> list[Advice]:
    """Return what the guides advise about engines that wait for the same bank or port."""
    banks, size = spec.psum_banks, spec.psum_bytes
    assert banks and size and spec.psum_partitions
    found = [
        ("PSUM banks", _BANKS, "tensor", _rewritten(events), doc.NKI_PERFORMANCE),
        ("PSUM groups", _GROUPS, "tensor", _groups(events, size // spec.psum_partitions // banks), doc.NKI_V2),
    ]
    if spec.generation == 2:
        psum = _together(events, ("vector", "scalar"), "psum")
        sbuf = _together(events, ("vector", "gpsimd"), "sbuf")
        found.append(("PSUM port", _PSUM_PORT, "vector", psum, doc.NKI_V2))
        found.append(("SBUF port", _SBUF_PORT, "vector", sbuf, doc.NKI_V2))
    return [advice_of(*row) for row in found if row[3]]


def _rewritten(events: Sequence[Event]) -> list[tuple[Record, float]]:
    """Return matmuls that waited until another engine had read their tile, with how long the engine was idle."""
    read_ns: dict[int, float] = {}
    free, found = 0.0, []
    for event in events:
        record = event.record
        if record.engine == "tensor":
            ends = [read_ns.get(access.storage, 0.0) for access in record.writes if access.buffer == "psum"]
            if record.opcode in _WRITERS and event.has_waited and max(ends, default=0.0) > free:
                found.append((record, event.start_ns - free))
            free = event.start_ns + event.busy_ns
        else:
            for access in record.reads:
                if access.buffer == "psum":
                    read_ns[access.storage] = event.end_ns
    return found


def _groups(events: Sequence[Event], bank_bytes: int) -> list[tuple[Record, float]]:
    """Return matmuls to a bank in which another placed tile is accumulated, until that is read."""
    open_groups: dict[tuple[int, int], int] = {}
    found = []
    for event in events:
        for access in event.record.writes if event.record.opcode in _WRITERS else ():
            if access.address is not None:
                key = (access.address[0], access.address[1] // bank_bytes)
                if open_groups.setdefault(key, access.storage) != access.storage:
                    found.append((event.record, event.busy_ns))
        for access in event.record.reads:
            for key in [key for key, storage in open_groups.items() if storage == access.storage]:
                del open_groups[key]
    return found


def _together(events: Sequence[Event], engines: tuple[str, str], buffer: str) -> list[tuple[Record, float]]:
    """Return instructions of the first engine that run while one of the second uses the same memory, and how long."""
    spans: dict[str, list[Event]] = {engine: [] for engine in engines}
    for event in events:
        record = event.record
        if record.engine in spans and any(a.buffer == buffer for a in record.accesses):
            spans[record.engine].append(event)
    found, place = [], 0
    others = spans[engines[1]]
    for event in spans[engines[0]]:
        end = event.start_ns + event.busy_ns
        while place < len(others) and others[place].start_ns + others[place].busy_ns <= event.start_ns:
            place += 1
        if place < len(others) and others[place].start_ns < end:
            shared = min(end, others[place].start_ns + others[place].busy_ns) - max(
                event.start_ns, others[place].start_ns
            )
            found.append((event.record, shared))
    return found
