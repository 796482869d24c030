"""Lanes of the simulated cores in `torch.profiler`: csrc/lanes.h of the device passes them to torch's trace.

The rest of torch's trace goes by the clock of this host. A call therefore begins when the host made it, or when its
core was done with the call before, and lasts its simulated time: as on an accelerator, the lane may end after the host.
Operators of a call follow one another, each for its part of that time. This module does not depend on ctypes.

    recording = start()
    model(x)
    for event in stop(recording):
        print(event.name, event.core_id, event.ended_ns - event.started_ns)
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from ..runtime import Recording, recording
from .graph import GraphProfile
from .perfetto import MAX_OPERATOR_EVENTS
from .recorder import Recorder
from .schedule import windows

SIMULATED = " (simulated)"
"""End of every name: torch's tables have these times beside measured ones."""


class LaneEvent(NamedTuple):
    """One call of a graph, or one operator of it, on one core; simulated."""

    is_call: bool
    """True for a call of a graph, False for an operator."""
    name: str
    """The graph with its model, or the operator."""
    core_id: int
    started_ns: int
    """Start since the epoch."""
    ended_ns: int


_numbers = itertools.count(1)
_open: dict[int, tuple[contextlib.ExitStack, Recording]] = {}
_lock = threading.Lock()


def start() -> int:
    """Record calls from now on; return the number of the recording, for `stop`."""
    stack = contextlib.ExitStack()
    executions = stack.enter_context(recording())
    with _lock:
        number = next(_numbers)
        _open[number] = stack, executions
    return number


def stop(number: int) -> list[LaneEvent]:
    """End a recording and return its events; none where no compiled graph ran."""
    with _lock:
        stack, executions = _open.pop(number)
    stack.close()
    return list(events(executions)) if executions else []


def events(executions: Recording) -> Iterator[LaneEvent]:
    """Place recorded calls, in any order, on the clock of this host.

    Operators beyond `MAX_OPERATOR_EVENTS` are left out: they are the same in each call of a graph.
    """
    epoch_ns = time.time_ns() - time.perf_counter_ns()
    ordered = sorted(executions, key=lambda execution: execution[1].started_ns)
    graphs = {
        (track.number, done.graph): Recorder("torch.profiler", [(track, done)]).profile().graphs[0]
        for track, done in {(track.number, done.graph): (track, done) for track, done in ordered}.values()
    }
    free_at: dict[tuple[str, int], int] = {}
    budget = MAX_OPERATOR_EVENTS
    for track, done in ordered:
        graph = graphs[track.number, done.graph]
        cores = [(track.instance.name, core_id) for core_id in track.core_ids]
        started_ns = max([done.started_ns + epoch_ns, *(free_at.get(core, 0) for core in cores)])
        ended_ns = started_ns + round(1e3 * graph.device_us)
        free_at.update(dict.fromkeys(cores, ended_ns))
        budget -= len(cores) * len(graph.operators)
        for core_id in track.core_ids:
            yield LaneEvent(True, f"{graph.graph} of {graph.model}{SIMULATED}", core_id, started_ns, ended_ns)
            if budget >= 0:
                yield from _operators(graph, core_id, started_ns)


def _operators(graph: GraphProfile, core_id: int, started_ns: int) -> Iterator[LaneEvent]:
    """The launch of a call and its operators, one after the other; slices shorter than a nanosecond are left out."""
    launched_ns = started_ns + round(1e3 * graph.launch_us)
    yield LaneEvent(False, f"launch{SIMULATED}", core_id, started_ns, launched_ns)
    for one, span in zip(graph.operators, windows(graph.operators, begin_us=graph.launch_us), strict=True):
        begin_ns, end_ns = started_ns + round(1e3 * span.started_us), started_ns + round(1e3 * span.ended_us)
        if end_ns > begin_ns:
            yield LaneEvent(False, f"{one.operator}{SIMULATED}", core_id, begin_ns, end_ns)
