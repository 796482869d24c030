"""Activity of a process between two of its statuses: utilization of each core, latencies, calls.

Host and chip do not run at one speed, so busy time on the chip says nothing as a share of time on this host. The
utilization here is that of the simulated clock: while a core executes, that clock goes on by the simulated time of the
call; the rest of the time, in which a program prepares inputs, picks tokens or waits, counts as it was.

    utilization = busy / (elapsed - executing + busy)

with `busy` the simulated time of the calls on the core, `executing` the time that the host took to simulate them, and
`elapsed` the time between the statuses. It is the utilization of an instance with this host, and cannot exceed 100 %.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from ..runtime import MICROCODE_OWNER, CoreStatus, Status

PERCENTILES = (0, 1, 25, 50, 75, 99, 100)
"""Percentiles that neuron-monitor reports."""

_SILENT_S = 5.0
"""A process that tells nothing for so long is suspended, or as good as that."""

COUNTING = "..."
"""The simulated time of calls is being counted, and eager operators from now on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreUse:
    """Simulated use of one core."""

    utilization_percent: float | None = None
    """Share of time that it was busy; None if not known."""
    flops_per_s: float | None = None
    """Operations per second of the simulated clock."""
    unknown: str = ""
    """Text in place of unknown figures: `COUNTING`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls of one entry point."""

    model_id: int
    core_ids: tuple[int, ...]
    num_calls: int
    device_us: float | None
    launch_us: float | None
    """Part of `device_us` that starts the call."""
    flops: float | None

    def latency_s(self, *, launch: bool) -> float:
        """Simulated time of one call, with the part that starts it or without."""
        assert self.device_us is not None and self.launch_us is not None
        return (self.device_us if launch else self.device_us - self.launch_us) / 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """Use of the cores by one process between two statuses."""

    elapsed_s: float
    """Time between the statuses."""
    cores: Mapping[int, CoreUse]
    """Use of each core, by core ID."""
    calls: tuple[Calls, ...]
    errors: Mapping[str, int]
    """Failed calls, by outcome."""

    @property
    def timed(self) -> bool:
        """Whether the simulated time of every call is known."""
        return all(calls.device_us is not None for calls in self.calls)

    def latencies_s(self, *, launch: bool) -> dict[str, float] | None:
        """Percentiles of the simulated time of a call; None where nothing ran, or the times are not known yet.

        `launch` adds the part that starts a call.
        """
        if not self.calls or not self.timed:
            return None
        times = [(calls.latency_s(launch=launch), calls.num_calls) for calls in self.calls]
        return {f"p{percent}": percentile(times, percent) for percent in PERCENTILES}


def usage_between(before: Status, after: Status) -> Usage:
    """Activity of a process between two statuses."""
    past = {(model.model_id, graph.name): graph.num_calls for model in before.models for graph in model.graphs}
    recorded = tuple(
        Calls(
            model_id=model.model_id,
            core_ids=model.core_ids,
            num_calls=num_calls,
            device_us=graph.device_us,
            launch_us=graph.launch_us,
            flops=graph.flops,
        )
        for model in after.models
        for graph in model.graphs
        if (num_calls := graph.num_calls - past.get((model.model_id, graph.name), 0)) > 0
    )
    elapsed_s = max(after.at_s - before.at_s, 0.0)
    failed = {name: count - before.errors.get(name, 0) for name, count in after.errors.items()}
    return Usage(
        elapsed_s=elapsed_s,
        cores={
            core.core_id: _core_use(
                [calls for calls in recorded if core.core_id in calls.core_ids],
                elapsed_us=1e6 * elapsed_s,
                executing_us=_executing_us(after, core.core_id) - _executing_us(before, core.core_id),
                has_programs=_has_programs(core, after),
            )
            for core in after.cores
        },
        calls=recorded,
        # Those of a model that was closed are gone, so that the sum may have become smaller.
        errors={name: count for name, count in failed.items() if count > 0},
    )


class Tracker:
    """Follows the statuses of processes, for one reader.

    Processes write a status about once a second. A reader that comes more often sees the same rates again.

    Args:
        repeat: Report the same calls again too, for a display; accumulated counts must not see them twice.
    """

    def __init__(self, *, repeat: bool = False) -> None:
        self._repeat = repeat
        self._last: dict[int, tuple[Status, Usage | None]] = {}

    def update(self, statuses: Sequence[Status], now_s: float) -> dict[int, Usage]:
        """Activity of each process since the last time, by ID; new ones are not in it yet.

        Processes without a status are forgotten; `now_s` is the time now, by `time.monotonic`.
        """
        followed = {}
        for status in statuses:
            before, usage = self._last.get(status.pid, (status, None))
            if status.at_s > before.at_s:
                usage = usage_between(before, status)
            elif usage is not None:
                idle = usage_between(status, status)
                if now_s - status.at_s > _SILENT_S:
                    usage = idle
                elif not self._repeat:
                    usage = dataclasses.replace(idle, cores=usage.cores)
            followed[status.pid] = status, usage
        self._last = followed
        return {pid: usage for pid, (_, usage) in followed.items() if usage is not None}


def percentile(times: Sequence[tuple[float, int]], percent: float) -> float:
    """Nearest-rank percentile of values that occur several times each.

    >>> from optimum_neuron.tools.usage import percentile
    >>> percentile([(2.0, 1), (1.0, 3)], 75), percentile([(2.0, 1), (1.0, 3)], 76)
    (1.0, 2.0)
    """
    rank = max(math.ceil(percent / 100 * sum(count for _, count in times)), 1)
    for value, count in sorted(times):
        rank -= count
        if rank <= 0:
            return value
    raise AssertionError("a percentile of nothing")


def _has_programs(core: CoreStatus, status: Status) -> bool:
    """Return whether programs are loaded on a core; an empty core counts as well, as it is idle."""
    loaded = any(core.core_id in model.core_ids for model in status.models)
    return loaded or not set(core.hbm_bytes) - {MICROCODE_OWNER}


def _executing_us(status: Status, core_id: int) -> float:
    """Host time of calls on a core so far, including running ones."""
    models = [model for model in status.models if core_id in model.core_ids]
    return sum(model.running_us + sum(graph.host_us for graph in model.graphs) for model in models)


def _core_use(calls: Sequence[Calls], *, elapsed_us: float, executing_us: float, has_programs: bool) -> CoreUse:
    if not has_programs:
        return CoreUse(unknown=COUNTING)
    busy_us = flops = 0.0
    for call in calls:
        if call.device_us is None or call.flops is None:
            return CoreUse(unknown=COUNTING)
        busy_us += call.num_calls * call.device_us
        flops += call.num_calls * call.flops
    # Calls of several threads on one core overlap on the host. A model that was closed took its calls along.
    other_us = elapsed_us - min(max(executing_us, 0.0), elapsed_us)
    clock_us = other_us + busy_us
    if not clock_us:  # one call took the whole period, and still runs: the core is busy
        return CoreUse(utilization_percent=100.0 if elapsed_us else 0.0, flops_per_s=0.0)
    return CoreUse(utilization_percent=100 * busy_us / clock_us, flops_per_s=1e6 * flops / clock_us)
