"""What engines that run beside each other take from each other: banks of PSUM, and ports of both memories.

It looks at pairs of instructions of a timeline, where `advice.py` looks at one instruction at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..hardware import CoreSpec, documents as doc
from .advice import Advice, advice_of
from .core import Record
from .timeline import Event

_MATMULS = ("nc_matmul", "nc_matmul_mx", "nc_transpose")
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
            if record.opcode in _MATMULS and event.has_waited and max(ends, default=0.0) > free:
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
        for access in event.record.writes if event.record.opcode in _MATMULS else ():
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
        if record.engine in spans and any(a.buffer == buffer for a in (*record.reads, *record.writes)):
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
