"""Host usage of the machine and its processes: processor time and memory, measured by psutil.

from optimum_neuron.tools.host import cpu_percent, cpu_times

before = cpu_times()
print(cpu_percent(before, cpu_times())[0]["user"])  # of the first vCPU since then
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import psutil

CPU_FIELDS = {
    "user": "user",
    "nice": "nice",
    "system": "system",
    "idle": "idle",
    "io_wait": "iowait",
    "irq": "irq",
    "soft_irq": "softirq",
}
"""Names of neuron-monitor, and psutil's; a system that does not count one of them has zeros."""

CpuTimes = tuple[Mapping[str, float], ...]
"""Seconds of each vCPU by field of `CPU_FIELDS`, since the host began."""


def cpu_times() -> CpuTimes:
    """Read the counters of all vCPUs."""
    return tuple(
        {name: getattr(times, field, 0.0) for name, field in CPU_FIELDS.items()}
        for times in psutil.cpu_times(percpu=True)
    )


def cpu_percent(before: CpuTimes, after: CpuTimes) -> list[dict[str, float]]:
    """Share of each field in the time between two readings, of each vCPU, in percent."""
    shares = []
    for old, new in zip(before, after, strict=False):  # vCPUs may be added to a host that runs
        spent = {name: max(new[name] - old[name], 0.0) for name in CPU_FIELDS}
        total = sum(spent.values())
        shares.append({name: 100 * seconds / total if total else 0.0 for name, seconds in spent.items()})
    return shares


def mean_percent(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean over vCPUs, by field."""
    return {name: sum(share[name] for share in shares) / max(len(shares), 1) for name in CPU_FIELDS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessUse:
    """Use of the host by one process."""

    user_s: float = 0.0
    """User time since the process began."""
    system_s: float = 0.0
    """Kernel time since the process began."""
    memory_bytes: int = 0
    """Resident memory, simulated HBM included."""
    error: str = ""
    """Why the counters cannot be read, or empty."""


def process_use(pid: int) -> ProcessUse:
    """Read the counters of a process; one that ended, or that may not be looked at, says so in `error`."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, memory = process.cpu_times(), process.memory_info()
    except psutil.Error as error:
        return ProcessUse(error=str(error) or type(error).__name__)
    return ProcessUse(user_s=times.user, system_s=times.system, memory_bytes=memory.rss)
