"""A profile as a trace for ui.perfetto.dev or chrome://tracing: host and cores on one clock.

One process for each core, with a thread for its calls and one for each engine, and counters of HBM and utilization; one
process for the host, with one thread for each host thread. Arrows lead from the host to the calls. Source of the form:
Trace Event Format (Google, "Trace Event Format", complete, metadata, counter and flow events).

    Path("trace.json").write_text(trace_json(profile))
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..nki import ENGINES as KERNEL_ENGINES
from .graph import GraphProfile
from .kernels import KernelProfile
from .operators import ENGINES, Engine, OperatorTime
from .profile import CallProfile, CoreProfile, Profile
from .schedule import Lane, Span, engine_lanes, windows

MAX_OPERATOR_EVENTS = 100_000
"""Of a trace: calls beyond that show no operators, which are the same in each call of a graph."""

_HOST_PID = 1
_FIRST_CORE_PID = 100
_CALLS_TID = 1
_ENGINE_TIDS = {engine: tid for tid, engine in enumerate(ENGINES, start=_CALLS_TID + 1)}
_KERNEL_TIDS = {engine: tid for tid, engine in enumerate(KERNEL_ENGINES, start=_CALLS_TID + 1 + len(ENGINES))}
"""Tracks of the instructions of NKI kernels."""

Event = dict[str, Any]


def trace_events(profile: Profile) -> dict[str, Any]:
    """The trace as plain data: `traceEvents`, times in microseconds."""
    kernels = {kernel.key: kernel for kernel in profile.kernels}
    detail = [_Detail(graph, kernels) for graph in profile.graphs]
    pids = {(core.instance, core.core_id): _FIRST_CORE_PID + i for i, core in enumerate(profile.cores)}
    events = list(_names(profile, pids))
    budget, num_without = MAX_OPERATOR_EVENTS, 0
    events += _between_calls(profile.calls)
    for number, call in enumerate(profile.calls):
        graph, shown = profile.graphs[call.graph], detail[call.graph]
        budget -= len(call.core_ids) * shown.num_events
        num_without += budget < 0
        events += _host(number, call, graph)
        for core_id in call.core_ids:
            pid = pids[graph.instance, core_id]
            events += _call(number, call, graph, pid)
            if budget >= 0:
                events += shown.events(call, pid)
    for core in profile.cores:
        events += _memory(core, pids[core.instance, core.core_id])
    notes = [*profile.notes]
    if num_without:
        calls = f"{num_without} of {len(profile.calls)} calls"
        notes.append(f"{calls} are shown without their operators: the trace is full")
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {
            "simulated": True,
            "name": profile.name,
            "instances": [f"{machine.instance} ({machine.target})" for machine in profile.machines],
            "assumptions": list(profile.assumptions),
            "notes": notes,
        },
    }


class _Detail:
    """Operators of one graph as events, from the begin of a call on: the same for each call of it."""

    def __init__(self, graph: GraphProfile, kernels: Mapping[str, KernelProfile]) -> None:
        self.operators = graph.operators
        spans = windows(graph.operators, begin_us=graph.launch_us)
        self.kernels = [
            (span.started_us, kernels[one.kernel])
            for one, span in zip(graph.operators, spans, strict=True)
            if one.kernel in kernels
        ]
        self.lanes = list(_in_ns(engine_lanes(graph.operators, begin_us=graph.launch_us)))
        self.counters = list(_counters(graph.operators, windows(graph.operators, begin_us=graph.launch_us)))
        self.num_events = len(self.lanes) + len(self.counters) + sum(len(one.events) for _, one in self.kernels)

    def events(self, call: CallProfile, pid: int) -> Iterator[Event]:
        call_ns = round(1e3 * call.started_us)
        for engine, index, begin_ns, end_ns in self.lanes:
            one, thread = self.operators[index], (pid, _ENGINE_TIDS[engine])
            args = {"operator": one.operator, "module": one.module_path, "line": one.source_line, "bound by": one.bound}
            yield _span(_short(one), one.bound, thread, (call_ns + begin_ns) / 1e3, (call_ns + end_ns) / 1e3, args)
        for begin_us, kernel in self.kernels:
            yield from _instructions(kernel, call.started_us + begin_us, pid)
        for at_us, name, values in self.counters:
            yield {"ph": "C", "name": name, "pid": pid, "ts": call.started_us + at_us, "args": values}
        for name in ("HBM reads", "utilization"):
            yield {"ph": "C", "name": name, "pid": pid, "ts": call.ended_us, "args": _ZERO[name]}


def _instructions(kernel: KernelProfile, begin_us: float, pid: int) -> Iterator[Event]:
    """Instructions of one launch of a kernel, on the tracks of the engines of kernels."""
    free_at: dict[str, float] = {}
    for event in kernel.events:
        start = max(begin_us + event.started_us, free_at.get(event.engine, 0.0))
        end = max(start, begin_us + event.started_us + event.busy_us)
        free_at[event.engine] = end
        args = {"kernel": kernel.name, "line": event.line}
        yield _span(event.opcode, "instruction", (pid, _KERNEL_TIDS[event.engine]), start, end, args)


_ZERO = {"HBM reads": {"GB/s": 0}, "utilization": {"tensor %": 0, "dma %": 0, "vector %": 0}}


def trace_json(profile: Profile) -> str:
    """Return the trace as the text of a file."""
    return json.dumps(trace_events(profile), allow_nan=False, separators=(",", ":"))


def _names(profile: Profile, pids: dict[tuple[str, int], int]) -> Iterator[Event]:
    def named(kind: str, pid: int, tid: int, key: str, value: object) -> Event:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {key: value}}

    yield named("process_name", _HOST_PID, 0, "name", "host: measured on this machine between calls")
    yield named("process_sort_index", _HOST_PID, 0, "sort_index", 0)
    for thread in sorted({call.thread for call in profile.calls}):
        yield named("thread_name", _HOST_PID, thread, "name", f"thread {thread}")
    for place, (core, pid) in enumerate(zip(profile.cores, pids.values(), strict=True), start=1):
        name = f"NeuronCore {core.core_id} of {core.instance}, simulated: {', '.join(core.models)}"
        yield named("process_name", pid, 0, "name", name)
        yield named("process_sort_index", pid, 0, "sort_index", place)
        for tid, title in ((_CALLS_TID, "calls"), *((_ENGINE_TIDS[engine], name) for engine, name in ENGINES.items())):
            yield named("thread_name", pid, tid, "name", title)
            yield named("thread_sort_index", pid, tid, "sort_index", tid)
        for engine in dict.fromkeys(engine for kernel in profile.kernels for engine in kernel.engines):
            yield named("thread_name", pid, _KERNEL_TIDS[engine], "name", f"kernel: {engine}")
            yield named("thread_sort_index", pid, _KERNEL_TIDS[engine], "sort_index", _KERNEL_TIDS[engine])


def _span(
    name: str,
    category: str,
    thread: tuple[int, int],
    begin_us: float,
    end_us: float,
    args: Mapping[str, Any] | None = None,
) -> Event:
    """Slices of a thread, as (process, thread); in whole nanoseconds, so that no rounding makes neighbors overlap."""
    begin_ns, end_ns = round(1e3 * begin_us), round(1e3 * end_us)
    event = {"ph": "X", "name": name, "cat": category, "pid": thread[0], "tid": thread[1]}
    event |= {"ts": begin_ns / 1e3, "dur": (end_ns - begin_ns) / 1e3}
    return event if args is None else event | {"args": args}


def _between_calls(calls: Sequence[CallProfile]) -> Iterator[Event]:
    """Activity of each host thread between its calls."""
    ended: dict[int, float] = {}
    for call in calls:
        before = ended.get(call.thread)
        if before is not None and call.started_us > before:
            yield _span("between calls", "host", (_HOST_PID, call.thread), before, call.started_us)
        ended[call.thread] = max(call.ended_us, ended.get(call.thread, 0.0))


def _host(number: int, call: CallProfile, graph: GraphProfile) -> Iterator[Event]:
    """The host waits for a call, and an arrow leads from there to the core."""
    args = {"model": graph.model, "simulated in, us of this host": call.host_us}
    yield _span(f"waits for {graph.graph}", "host", (_HOST_PID, call.thread), call.started_us, call.ended_us, args)
    yield _arrow("s", number, call, (_HOST_PID, call.thread))


def _call(number: int, call: CallProfile, graph: GraphProfile, pid: int) -> Iterator[Event]:
    thread = (pid, _CALLS_TID)
    args = {"model": graph.model, "limited by": graph.limited_by, "simulated": True}
    yield _span(graph.graph, "call", thread, call.started_us, call.ended_us, args)
    if pid == _FIRST_CORE_PID or len(call.core_ids) == 1:
        yield _arrow("f", number, call, thread) | {"bp": "e"}
    yield _span("launch", "call", thread, call.started_us, call.started_us + graph.launch_us)


def _arrow(phase: str, number: int, call: CallProfile, thread: tuple[int, int]) -> Event:
    pid, tid = thread
    return {"ph": phase, "name": "call", "cat": "host", "id": number, "pid": pid, "tid": tid, "ts": call.started_us}


def _in_ns(lanes: Sequence[Lane]) -> Iterator[tuple[Engine, int, int, int]]:
    """Engine, operator, begin, and end in whole nanoseconds; slices shorter than one are left out."""
    free_at: dict[Engine, int] = {}
    for lane in lanes:
        begin_ns = max(round(1e3 * lane.started_us), free_at.get(lane.engine, 0))
        end_ns = max(round(1e3 * (lane.started_us + lane.time_us)), begin_ns)
        free_at[lane.engine] = end_ns
        if end_ns > begin_ns:
            yield lane.engine, lane.index, begin_ns, end_ns


def _short(one: OperatorTime) -> str:
    """An operator with the end of its place."""
    name = one.operator.rpartition(".")[2]
    place = one.module_path.rpartition(".")[2]
    return f"{name} in {place}" if place else name


def _counters(
    operators: Sequence[OperatorTime], spans: Sequence[Span]
) -> Iterator[tuple[float, str, dict[str, float]]]:
    """Rate of HBM reads and load of the engines while each operator runs, where they change."""
    before: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for one, span in zip(operators, spans, strict=True):
        if not one.time_us:
            continue
        loads = {f"{engine} %": _percent(getattr(one, f"{engine}_us"), one) for engine in ("tensor", "dma", "vector")}
        reads = {"GB/s": round(one.hbm_bytes / one.time_us / 1e3, 1)}
        for name, values in (("HBM reads", reads), ("utilization", loads)):
            if values != before[name]:
                before[name] = values
                yield span.started_us, name, values


def _percent(busy_us: float, one: OperatorTime) -> float:
    # A transfer that hides behind earlier operators may be longer than its own operator.
    return round(min(100.0, 100 * busy_us / one.time_us), 1)


def _memory(core: CoreProfile, pid: int) -> Iterator[Event]:
    sizes = {f"{category} MiB": round(size / 2**20, 3) for category, size in core.hbm_bytes.items()}
    yield {"ph": "C", "name": "HBM", "pid": pid, "ts": 0.0, "args": sizes}
