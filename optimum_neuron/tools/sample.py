"""Everything that a tool reads at one moment: processes, their statuses, and their use of the host.

from optimum_neuron.tools.sample import take_sample

sample = take_sample("inf2.xlarge", now_s=0.0)
print(len(sample.processes), [status.tag for status in sample.statuses])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..hardware import InstanceSpec
from ..runtime.claims_folder import claims_folder
from ..runtime.status import Status, watch
from .host import ProcessUse, process_use
from .processes import NeuronProcess, choose_instance, neuron_processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """State of all processes at one moment."""

    at_s: float
    """Time of `time.monotonic`."""
    instance: InstanceSpec
    processes: Mapping[int, NeuronProcess]
    """Processes that hold cores, by process ID; unreadable claims are left out."""
    hosts: Mapping[int, ProcessUse]
    """Use of the host, by process ID."""

    @property
    def statuses(self) -> list[Status]:
        """Readable statuses of the processes."""
        return [process.status for process in self.processes.values() if process.status is not None]


def take_sample(instance: str | None, now_s: float) -> Sample:
    """Read everything, and ask the processes for simulated times.

    Args:
        instance: simulated instance; None for that whose cores are held.
        now_s: the time now, by `time.monotonic`.

    Raises:
        ConfigError: there is no such instance, or the folder of the claims cannot be used.
    """
    chosen = choose_instance(instance).value
    watch(claims_folder(chosen))
    processes = {process.pid: process for process in neuron_processes(chosen) if process.pid is not None}
    hosts = {pid: process_use(pid) for pid in processes}
    return Sample(at_s=now_s, instance=chosen, processes=processes, hosts=hosts)
