"""When things happen: calls on one clock of host and cores, and the engines inside one call.

Outside of calls, the clock follows the host's own: the program's work between calls is real. While cores are at work it
goes as they do: a call takes its simulated time, whatever the host needs to simulate it. It does not depend on models
or files.

    spans = on_one_clock(calls)
    lanes = engine_lanes(operators, begin_us=launch_us)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from .operators import ENGINES, Engine, OperatorTime


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """A call as the host saw it."""

    core_ids: tuple[tuple[str, int], ...]
    """Cores that it occupies, as (instance, core)."""
    device_us: float
    started_us: float
    """Start on the host's clock."""
    ended_us: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """Interval on the simulated clock, which begins with the first call."""

    started_us: float
    ended_us: float


def on_one_clock(calls: Sequence[RecordedCall]) -> list[Span]:
    """Place calls on the clock, in the order in which they are given.

    Calls that overlap on the host are one piece of work of their cores, each of which takes its calls one after the
    other; the piece lasts until the last core is done.
    """
    spans: dict[int, Span] = {}
    clock_us = 0.0
    before_us: float | None = None
    for piece in _overlapping(calls):
        begin_us = min(calls[index].started_us for index in piece)
        clock_us += 0.0 if before_us is None else begin_us - before_us
        free_at: dict[tuple[str, int], float] = {}
        for index in piece:
            call = calls[index]
            start = max((free_at.get(core, clock_us) for core in call.core_ids), default=clock_us)
            spans[index] = Span(started_us=start, ended_us=start + call.device_us)
            free_at.update(dict.fromkeys(call.core_ids, start + call.device_us))
        clock_us = max(spans[index].ended_us for index in piece)
        before_us = max(calls[index].ended_us for index in piece)
    return [spans[index] for index in range(len(calls))]


def _overlapping(calls: Sequence[RecordedCall]) -> Iterator[list[int]]:
    """Indices of calls, grouped while one begins before all earlier ones have ended."""
    piece: list[int] = []
    end_us = 0.0
    for index in sorted(range(len(calls)), key=lambda index: calls[index].started_us):
        if piece and calls[index].started_us >= end_us:
            yield piece
            piece = []
        end_us = max(end_us, calls[index].ended_us) if piece else calls[index].ended_us
        piece.append(index)
    if piece:
        yield piece


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lane:
    """One operator on one engine."""

    engine: Engine
    index: int
    """Of the operator in its graph."""
    started_us: float
    """Begin, from the begin of the call."""
    time_us: float
    """Busy time of the engine."""


def windows(operators: Sequence[OperatorTime], *, begin_us: float) -> list[Span]:
    """When each operator runs: one after the other, each for its part of the graph's time."""
    spans = []
    for one in operators:
        spans.append(Span(started_us=begin_us, ended_us=begin_us + one.time_us))
        begin_us += one.time_us
    return spans


def engine_lanes(operators: Sequence[OperatorTime], *, begin_us: float) -> list[Lane]:
    """When each engine is busy with which operator.

    An engine takes operators in order, one at a time, and each for its own full time. Transfers and products come as
    late as their operator allows, and early where it is shorter than they are: they then hide behind earlier
    operators. Vector passes and links, which wait for both, end their operator.
    """
    spans = windows(operators, begin_us=begin_us)
    lanes = []
    for engine in ENGINES:
        busy = [getattr(one, f"{engine}_us") for one in operators]
        ends = [_end_on(engine, one, span) for one, span in zip(operators, spans, strict=True)]
        starts = _latest_starts(busy, ends, begin_us)
        lanes += [
            Lane(engine=engine, index=index, started_us=start, time_us=time)
            for index, (start, time) in enumerate(zip(starts, busy, strict=True))
            if time
        ]
    return lanes


def _end_on(engine: Engine, one: OperatorTime, span: Span) -> float:
    """When an engine should be done with an operator."""
    after = {"link": 0.0, "vector": one.link_us}.get(engine, one.link_us + one.vector_us)
    return span.ended_us - after


def _latest_starts(busy: Sequence[float], ends: Sequence[float], begin_us: float) -> list[float]:
    """Latest begins, in order and without overlap; where that would be before `begin_us`, all move on together."""
    starts = [0.0] * len(busy)
    limit = float("inf")
    for index in reversed(range(len(busy))):
        limit = starts[index] = min(ends[index], limit) - busy[index]
    free_at = begin_us
    for index, time in enumerate(busy):
        starts[index] = max(starts[index], free_at)
        free_at = starts[index] + time
    return starts
