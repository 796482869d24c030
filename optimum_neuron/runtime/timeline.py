"""Activity of this process's simulated cores: every call of a loaded program, by core, model, and graph.

A graph is static, so each call of it takes the core the same simulated time. Running a program therefore only counts
its calls; the time of a call is computed when it is first needed, once for each graph. This module knows no rates:
`optimum_neuron.simulator.clock` does, and gives the times that `estimate` gives.

    from optimum_neuron.simulator.clock import core_usage

    for core in core_usage():
        print(core.instance, core.core_id, core.num_calls, core.busy_us)  # since the process began, simulated
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.core import AutoCast
from ..hardware import InstanceSpec
from .observers import OBSERVERS

if TYPE_CHECKING:
    from ..compiler import Program

CLOSED = 16
"""Closed programs whose calls can still be timed; of older ones only the number of calls remains."""


class Execution(NamedTuple):
    """One call of a program, on the clock of this host (`time.perf_counter_ns`)."""

    graph: str
    thread: int
    """The caller (`threading.get_ident`)."""
    started_ns: int
    ended_ns: int
    """The difference is the time of the simulation, which the core would not take."""


@dataclasses.dataclass(eq=False, repr=False)
class Track:
    """Calls of one loaded program on its cores, or of graphs whose work was counted; `Timeline.open` adds it."""

    program: Program | None
    """Program; None for graphs without a program, whose work is in `works`."""
    _: dataclasses.KW_ONLY
    model: str
    instance: InstanceSpec
    core_ids: tuple[int, ...]
    """Cores that a call occupies."""
    num_peers: int = 1
    """Cores of all processes that a call exchanges tensors with, this one included."""
    is_first_of_instance: bool = False
    """Whether its inputs come from a pipeline stage on another instance, over the network."""
    num_stages: int = 1
    """Pipeline stages of the model that the program is one of."""
    auto_cast: AutoCast
    """Rounded operations of its compile: the rate of float32 matmuls depends on it."""
    task: str | None = None
    """Kind of the model, if known: the intervals of its times depend on it."""
    assumptions: tuple[str, ...] = ()
    """Assumptions of its times besides the common ones."""
    works: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Work of one call of a graph that has no program, by name: graphs of `torch.compile`."""
    number: int = dataclasses.field(default_factory=itertools.count(1).__next__)
    """Number of the load within the process."""
    device_us: dict[str, float | None] = dataclasses.field(default_factory=dict)
    """Simulated time of a call in microseconds, by graph; filled when first needed, None if unknown."""

    def __post_init__(self) -> None:
        self._counts: dict[tuple[int, str], tuple[int, int]] = {}
        self._errors: Counter[tuple[int, str]] = Counter()
        self._running: dict[int, int] = {}
        self._paused = False

    def start(self) -> int:
        """Begin of an execution, for `end`."""
        started_ns = self._running[threading.get_ident()] = time.perf_counter_ns()
        return started_ns

    def end(self, graph: str, started_ns: int, ended_ns: int | None = None) -> None:
        """Count an execution; None: it ends now."""
        thread = threading.get_ident()
        self._running.pop(thread, None)
        if not self._paused:
            self.add(graph, thread, started_ns, time.perf_counter_ns() if ended_ns is None else ended_ns)

    def add(self, graph: str, thread: int, started_ns: int, ended_ns: int) -> None:
        """Count an execution of a thread, which ended."""
        # A key for each thread: no two of them add to the same count, so that none has to wait.
        count, host_ns = self._counts.get((thread, graph), (0, 0))
        self._counts[thread, graph] = count + 1, host_ns + ended_ns - started_ns
        for recording in _RECORDINGS:
            recording.append((self, Execution(graph, thread, started_ns, ended_ns)))

    def fail(self, outcome: str) -> None:
        """Count an execution that raised, under a key of neuron-monitor's `execution_summary`."""
        thread = threading.get_ident()
        self._running.pop(thread, None)
        if not self._paused:
            self._errors[thread, outcome] += 1

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Count nothing inside: validation of a program is no use of its core."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    @property
    def num_calls(self) -> dict[str, int]:
        """Calls since it was loaded, by graph."""
        return _of_all_threads((graph, count) for (_, graph), (count, _) in list(self._counts.items()))

    def num_calls_here(self) -> dict[str, int]:
        """Return the calls that this thread made since it was loaded, by graph."""
        thread = threading.get_ident()
        return {graph: count for (caller, graph), (count, _) in list(self._counts.items()) if caller == thread}

    @property
    def host_us(self) -> dict[str, float]:
        """Measured time that this host took to simulate these calls, by graph."""
        times_ns = _of_all_threads((graph, host_ns) for (_, graph), (_, host_ns) in list(self._counts.items()))
        return {graph: time_ns / 1e3 for graph, time_ns in times_ns.items()}

    @property
    def running_us(self) -> float:
        """Measured time that executions under way have taken so far."""
        now_ns = time.perf_counter_ns()
        return sum(now_ns - started_ns for started_ns in list(self._running.values())) / 1e3

    @property
    def errors(self) -> dict[str, int]:
        """Executions that raised, by outcome."""
        return _of_all_threads((outcome, count) for (_, outcome), count in list(self._errors.items()))


def _of_all_threads(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for name, count in counts:
        total[name] += count
    return dict(total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreUsage:
    """Calls of one core since the process began."""

    instance: str
    core_id: int
    """The logical core on the instance."""
    busy_us: float
    """Simulated time of all calls."""
    num_calls: int
    """Calls, including later ones."""
    num_untimed_calls: int
    """Calls without a time: it cannot be computed, or programs were closed before anybody asked (see `CLOSED`)."""
    busy_us_by_model: Mapping[str, float] = dataclasses.field(hash=False)
    """The part of each model that is loaded."""
    num_calls_by_model: Mapping[str, int] = dataclasses.field(hash=False)
    """Calls of each model that is loaded."""
    simulated: bool = True
    """Marks every figure as simulated."""


DeviceTimes = Callable[[Track, str], float | None]
"""Simulated microseconds of one call of a graph; None if they cannot be computed."""


@dataclasses.dataclass
class _Past:
    busy_us: float = 0.0
    num_calls: int = 0
    num_untimed_calls: int = 0


class Timeline:
    """The tracks of all programs of this process. Nothing in it waits for a lock: finalizers of programs call it."""

    def __init__(self) -> None:
        self._open: dict[int, Track] = {}
        self._closed: deque[Track] = deque()
        self._past: dict[tuple[str, int], _Past] = {}
        self._reading = threading.Lock()

    def open(self, track: Track) -> Track:
        """Add a program that was loaded."""
        self._open[id(track)] = track
        return track

    def close(self, track: Track) -> None:
        """A program was closed; its calls stay in the totals. Calling it again does nothing."""
        if self._open.pop(id(track), None) is None or not track.num_calls:
            return
        self._closed.append(track)
        while len(self._closed) > CLOSED:
            self._fold(self._closed.popleft(), None)

    def tracks(self) -> list[Track]:
        """Programs that are loaded, in the order in which they were."""
        return list(self._open.values())

    def usage(self, device_us: DeviceTimes) -> list[CoreUsage]:
        """Totals of each core by instance and core; `device_us` is asked once for each graph that was called."""
        with self._reading:
            while self._closed:
                self._fold(self._closed.popleft(), device_us)
            tracks = self.tracks()
            cores = dict.fromkeys(
                (*self._past, *((track.instance.name, core) for track in tracks for core in track.core_ids))
            )
            return [
                self._core(name, core, [t for t in tracks if t.instance.name == name and core in t.core_ids], device_us)
                for name, core in sorted(cores)
            ]

    def forget(self) -> None:
        """Reset in a forked child, which has no part in the cores of its parent."""
        self.__init__()  # type: ignore[misc]

    def _core(self, instance: str, core_id: int, tracks: list[Track], device_us: DeviceTimes) -> CoreUsage:
        past = self._past.get((instance, core_id), _Past())
        busy: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        num_untimed = past.num_untimed_calls
        for track in tracks:
            for graph, count in track.num_calls.items():
                calls[track.model] += count
                time_us = _time_of(track, graph, device_us)
                num_untimed += count if time_us is None else 0
                busy[track.model] += count * (time_us or 0.0)  # type: ignore[assignment]
        return CoreUsage(
            instance=instance,
            core_id=core_id,
            busy_us=past.busy_us + sum(busy.values()),
            num_calls=past.num_calls + sum(calls.values()),
            num_untimed_calls=num_untimed,
            busy_us_by_model=dict(busy),
            num_calls_by_model=dict(calls),
        )

    def _fold(self, track: Track, device_us: DeviceTimes | None) -> None:
        for core in track.core_ids:
            past = self._past.setdefault((track.instance.name, core), _Past())
            for graph, count in track.num_calls.items():
                past.num_calls += count
                time_us = None if device_us is None else _time_of(track, graph, device_us)
                if time_us is None:
                    past.num_untimed_calls += count
                else:
                    past.busy_us += count * time_us


def _time_of(track: Track, graph: str, device_us: DeviceTimes) -> float | None:
    if graph not in track.device_us:
        track.device_us[graph] = device_us(track, graph)
    return track.device_us[graph]


def end_call(stages: Sequence[Track], graph: str, started_ns: int) -> None:
    """Count a call of a program, whose stages ran one after the other.

    The host computes all stages in one call, so that each has an equal share of the measured time.
    """
    stages = [track for track in stages if track.program is None or graph in track.program.graphs]
    share_ns = (time.perf_counter_ns() - started_ns) // len(stages)
    for number, track in enumerate(stages):
        track.end(graph, started_ns + number * share_ns, started_ns + (number + 1) * share_ns)


TIMELINE = Timeline()
os.register_at_fork(after_in_child=TIMELINE.forget)

Recording = list[tuple[Track, Execution]]
"""Executions with their calls, in the order in which they end."""
_RECORDINGS: list[Recording] = []


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Keep every execution of this process from here to the end of the block.

    Eager operators appear when they are collected (`observers.py`), and at the end of the block.
    """
    executions: Recording = []
    OBSERVERS.collect()
    _RECORDINGS.append(executions)
    try:
        with OBSERVERS.watching():
            yield executions
    finally:
        OBSERVERS.collect()
        # By identity: two recordings of the same executions are equal.
        _RECORDINGS[:] = [other for other in _RECORDINGS if other is not executions]
