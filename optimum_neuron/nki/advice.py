"""What the public guides advise, for the instructions of a kernel that do otherwise.

Each rule looks at one instruction and has the document that publishes it. Advice is a count with the line that costs
most: whether to follow it is the author's decision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ..hardware import CoreTiming, documents as doc
from .core import Access, PlainData, Record
from .cost import run_bytes
from .dtypes import FORMATS
from .timeline import ENGINES, Event, elements

LANES = 128
_MATMULS = ("nc_matmul", "nc_matmul_mx")


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Rule:
    topic: str
    text: str
    source: str
    applies: Callable[[Record, CoreTiming], bool]


def _per_partition(access: Access) -> int:
    return elements(access) // max(1, access.shape[0])


def _is_scattered(record: Record, timing: CoreTiming) -> bool:
    shortest = min(map(run_bytes, (*record.reads, *record.writes)))
    return record.engine == "dma" and shortest < timing.dma_recommended_bytes


def _is_narrow(record: Record, timing: CoreTiming) -> bool:
    return record.engine in ("vector", "scalar", "gpsimd") and bool(record.writes) and record.writes[0].shape[0] < LANES


def _is_short(record: Record, timing: CoreTiming) -> bool:
    if record.engine not in ("vector", "scalar"):
        return False
    return max(map(_per_partition, (*record.reads, *record.writes))) < timing.sram_access_cycles


def _has_strides(record: Record, timing: CoreTiming) -> bool:
    return record.engine in ("vector", "scalar") and any(
        access.strides[-1] * FORMATS[access.dtype].size_bytes > timing.stride_limit_bytes and access.shape[-1] > 1
        for access in (*record.reads, *record.writes)
    )


RULES = (
    _Rule(
        topic="moving columns",
        text="Move at least as many columns in a matmul as its shortest time covers, 512 at best.",
        source=doc.NKI_V2,
        applies=lambda record, timing: (
            record.opcode in _MATMULS and _per_partition(record.writes[0]) < timing.matmul_min_cycles
        ),
    ),
    _Rule(
        topic="contracted rows",
        text="Contract 128 partitions in a matmul: fewer leave rows of the array idle.",
        source=doc.NKI_V2,
        applies=lambda record, timing: record.opcode in _MATMULS and record.reads[0].shape[0] < LANES,
    ),
    _Rule(
        topic="stationary columns",
        text="Use 128 stationary columns in a matmul: fewer leave columns of the array idle.",
        source=doc.NKI_V2,
        applies=lambda record, timing: record.opcode in _MATMULS and record.writes[0].shape[0] < LANES,
    ),
    _Rule(
        topic="float32 matmul",
        text="Multiply in bfloat16 where its precision is enough: float32 takes 4 times as long.",
        source=doc.NKI_V2,
        applies=lambda record, timing: record.opcode in _MATMULS and record.reads[1].dtype == "float32",
    ),
    _Rule(
        topic="DMA size",
        text="Move at least 2 KiB at a stretch in each partition; 4 KiB saturate the engines.",
        source=doc.NKI_DMA,
        applies=_is_scattered,
    ),
    _Rule(
        topic="partitions",
        text="Use all 128 partitions: an instruction takes as long for one as for all.",
        source=doc.NKI_V2,
        applies=_is_narrow,
    ),
    _Rule(
        topic="short instructions",
        text="Give an instruction more elements in a partition: the start of its access takes longer than they do.",
        source=doc.NKI_V2,
        applies=_is_short,
    ),
    _Rule(
        topic="strides",
        text="Keep the step between elements below 16 bytes: a larger one halves the rate of SBUF.",
        source=doc.NKI_V2,
        applies=_has_strides,
    ),
)
"""The rules, in the order in which an instruction is looked at."""


def advise(events: Sequence[Event], timing: CoreTiming) -> list[Advice]:
    """Return what the guides advise, the advice about most time first."""
    found = []
    for rule in RULES:
        concerned = [one for one in events if one.record.reads and rule.applies(one.record, timing)]
        for engine in ENGINES:
            own = [(one.record, one.busy_ns) for one in concerned if one.record.engine == engine]
            if own:
                found.append(advice_of(rule.topic, rule.text, engine, own, rule.source))
    return sorted(found, key=lambda one: -one.busy_us)


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
