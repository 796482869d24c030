"""One frame of `neuron-top`: a sample with the rates since the sample before it.

from optimum_neuron.tools.frame import Camera

frame = Camera("inf2.xlarge").take(now_s=0.0)
print(frame.tabs)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import psutil

from ..hardware import InstanceSpec
from .host import ProcessUse, cpu_percent, cpu_times, mean_percent
from .processes import NeuronProcess, others_in_use, take_sample
from .usage import Tracker, Usage


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessFrame:
    """One process that holds cores."""

    process: NeuronProcess
    usage: Usage | None
    """Use of the cores since the last frame; None if not known yet."""
    host: ProcessUse
    user_percent: float
    """User time since the last frame, of all vCPUs."""
    system_percent: float
    """Kernel time since the last frame, of all vCPUs."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    """Data of one screen."""

    instance: InstanceSpec
    processes: tuple[ProcessFrame, ...]
    """Processes that hold cores of the instance."""
    user_percent: float
    """User time of the host, of all vCPUs."""
    system_percent: float
    """Kernel time of the host, of all vCPUs."""
    memory_total_bytes: int
    memory_used_bytes: int
    others: tuple[str, ...]
    """Other instances with claimed cores."""

    @property
    def tabs(self) -> tuple[str, ...]:
        """Names of the tabs: everything, then each process."""
        return ("all", *(process.process.tag for process in self.processes))

    @property
    def complete(self) -> bool:
        """Whether everything is known that processes will tell."""
        return all(process.usage is not None and process.usage.timed for process in self.processes)

    def selected(self, tab: int) -> tuple[ProcessFrame, ...]:
        """The processes of a tab; all of them where there is no such tab any more."""
        return self.processes[tab - 1 : tab] if 0 < tab < len(self.tabs) else self.processes


class Camera:
    """Takes frames of an instance; None: of that whose cores are held when a frame is taken."""

    def __init__(self, instance: str | None) -> None:
        self._instance = instance
        self._tracker = Tracker(repeat=True)
        self._last_s = 0.0
        self._cpu = cpu_times()
        self._hosts: Mapping[int, ProcessUse] = {}

    def take(self, now_s: float) -> Frame:
        """Look at everything; `now_s` is the time now, by `time.monotonic`."""
        sample = take_sample(self._instance, now_s)
        usages = self._tracker.update(sample.statuses, now_s)
        elapsed_s = max(now_s - self._last_s, 1e-9) * (psutil.cpu_count() or 1)
        processes = []
        for pid, process in sample.processes.items():
            host = sample.hosts[pid]
            before = self._hosts.get(pid, host)
            processes.append(
                ProcessFrame(
                    process=process,
                    usage=usages.get(pid),
                    host=host,
                    user_percent=100 * max(host.user_s - before.user_s, 0.0) / elapsed_s,
                    system_percent=100 * max(host.system_s - before.system_s, 0.0) / elapsed_s,
                )
            )
        cpu = cpu_times()
        shares = mean_percent(cpu_percent(self._cpu, cpu))
        self._last_s, self._cpu, self._hosts = now_s, cpu, sample.hosts
        memory = psutil.virtual_memory()
        return Frame(
            instance=sample.instance,
            processes=tuple(processes),
            user_percent=shares["user"] + shares["nice"],
            system_percent=sum(shares[name] for name in ("system", "io_wait", "irq", "soft_irq")),
            memory_total_bytes=memory.total,
            memory_used_bytes=memory.used,
            others=tuple(others_in_use(sample.instance)),
        )
