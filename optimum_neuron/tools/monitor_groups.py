"""The groups of `neuron-monitor` over time: each compares the sample with its state at the last report.

from optimum_neuron.tools.monitor_config import Metric
from optimum_neuron.tools.monitor_groups import SystemGroup
from optimum_neuron.tools.processes import take_sample

group = SystemGroup(Metric(type="memory_info", period_s=5.0), now_s=0.0)
print(group.collect(take_sample(None, now_s=5.0))["memory_used_bytes"])
"""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from . import report
from .host import ProcessUse, cpu_times
from .monitor_config import Metric
from .processes import Sample
from .report import Group
from .usage import Tracker, Usage, usage_between


class TimedGroup:
    """A group and when it is due."""

    def __init__(self, metric: Metric, now_s: float) -> None:
        self.type = metric.type
        self.due_s = now_s + metric.period_s
        self._period_s = metric.period_s
        self._last_s = now_s

    def _restart(self, now_s: float) -> float:
        """Begin the next period; the length of the one that ends."""
        elapsed_s, self._last_s = now_s - self._last_s, now_s
        self.due_s += self._period_s
        if self.due_s <= now_s:  # late by more than a period: skip the missed ones
            self.due_s = now_s + self._period_s
        return elapsed_s


class RuntimeGroup(TimedGroup):
    """A group of metrics of processes."""

    def __init__(self, metric: Metric, now_s: float) -> None:
        super().__init__(metric, now_s)
        self._tracker = Tracker()
        self._hosts: Mapping[int, ProcessUse] = {}

    def observe(self, sample: Sample) -> dict[int, Usage]:
        """Sample the processes: the next sample reports their activity since this one."""
        self._hosts = sample.hosts
        return self._tracker.update(sample.statuses, sample.at_s)

    def collect(self, sample: Sample) -> dict[int, Group]:
        """Return the group of each process with a status, by process ID."""
        hosts, usages = self._hosts, self.observe(sample)
        period_s = self._restart(sample.at_s)
        groups = {}
        for status in sample.statuses:
            # A process without an earlier status has no differences to report.
            usage = usages.get(status.pid) or usage_between(status, status)
            host = sample.hosts[status.pid]
            if self.type == "neuroncore_counters":
                groups[status.pid] = report.neuroncore_counters(period_s, usage, sample.instance)
            elif self.type == "execution_stats":
                groups[status.pid] = report.execution_stats(period_s, usage)
            elif self.type == "memory_used":
                groups[status.pid] = report.memory_used(period_s, status, host, sample.instance, usage)
            else:
                before = hosts.get(status.pid, host)
                groups[status.pid] = report.neuron_runtime_vcpu_usage(period_s, before, host, psutil.cpu_count() or 1)
        return groups


class SystemGroup(TimedGroup):
    """A group of metrics of the instance and its host."""

    def __init__(self, metric: Metric, now_s: float) -> None:
        super().__init__(metric, now_s)
        self._cpu, self._num_switches = cpu_times(), psutil.cpu_stats().ctx_switches

    def collect(self, sample: Sample) -> Group:
        """The group."""
        period_s = self._restart(sample.at_s)
        if self.type == "neuron_hw_counters":
            return report.neuron_hw_counters(period_s, sample.instance)
        if self.type == "memory_info":
            memory, swap = psutil.virtual_memory(), psutil.swap_memory()
            return report.memory_info(
                period_s, total=memory.total, used=memory.used, swap_total=swap.total, swap_used=swap.used
            )
        before = self._cpu, self._num_switches
        self._cpu, self._num_switches = cpu_times(), psutil.cpu_stats().ctx_switches
        return report.vcpu_usage(period_s, before[0], self._cpu, self._num_switches - before[1])
