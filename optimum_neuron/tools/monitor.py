"""`neuron-monitor`: metrics of the simulated cores, of the processes on them and of the host, as lines of JSON.

A line has the groups that are due, and `instance_info` and `neuron_hardware_info` always; the schema is the real tool's
(`report.py`), so that exporters which read it keep working. A group is in a line once: exporters add up its counts.

    neuron-monitor --config-file monitor.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cli import NeuronParser, Out, run_guarded
from ..runtime import claims_folder, watch
from . import report
from .monitor_config import DEFAULT_CONFIG, MonitorConfig, read_config
from .monitor_groups import RuntimeGroup, SystemGroup, TimedGroup
from .processes import Sample, add_instance, choose_instance, others_in_use, take_sample
from .report import Group

_WATCH_S = 1.0
"""Period of requests for simulated times."""

Say = Callable[[int, str], None]
"""Tells something that is worth a level of verbosity."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-monitor` until it is stopped, and return its exit code."""
    parser = NeuronParser(
        prog="neuron-monitor",
        description="Print metrics of the simulated cores and their processes as JSON, a line at a time.",
    )
    parser.add_argument("-c", "--config-file", type=Path, metavar="FILE", help="JSON: what to report, and how often")
    parser.add_argument(
        "--verbose",
        type=int,
        choices=range(5),
        default=0,
        metavar="0-4",
        help="talk on stderr: 1 what cannot be read, 2 and more what each line has (default: 0)",
    )
    add_instance(parser)
    options = parser.parse_args(arguments)
    return run_guarded(lambda out: _run(options, out), Out(), command=parser.prog)


def _run(options: argparse.Namespace, out: Out) -> None:
    def say(level: int, text: str) -> None:
        if level <= options.verbose:
            print(text, file=out.stderr)

    config = DEFAULT_CONFIG if options.config_file is None else read_config(options.config_file)
    for line in reports(config, options.instance, say=say):
        out.text(json.dumps(line, allow_nan=False))
        out.flush()


def reports(
    config: MonitorConfig,
    instance: str | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    say: Say = lambda level, text: None,
) -> Iterator[dict[str, Any]]:
    """Make a report whenever a group is due, without end.

    Args:
        instance: simulated instance; None for that whose cores are held at the time of a report.
        clock: Seconds, as from `time.monotonic`.
        say: callback for unreadable state (1) and the content of each report (2).
    """
    monitor = Monitor(config, instance, clock())
    while True:
        while (now_s := clock()) < monitor.due_s:
            watch(claims_folder(choose_instance(instance).value))
            sleep(min(monitor.due_s - now_s, _WATCH_S))
        yield monitor.report(now_s, say)


class Monitor:
    """Collects the groups of a configuration; their first periods begin at `now_s`."""

    def __init__(self, config: MonitorConfig, instance: str | None, now_s: float) -> None:
        self._config = config
        self._instance = instance
        self._of_runtimes = [
            [RuntimeGroup(metric, now_s) for metric in runtime.metrics] for runtime in config.neuron_runtimes
        ]
        self._of_system = [SystemGroup(metric, now_s) for metric in config.system_metrics]
        sample = take_sample(self._instance, now_s)
        for groups in self._of_runtimes:
            for group in groups:
                group.observe(sample)

    @property
    def due_s(self) -> float:
        """When the next report is due."""
        groups: list[TimedGroup] = [*(group for groups in self._of_runtimes for group in groups), *self._of_system]
        return min(group.due_s for group in groups)

    def report(self, now_s: float, say: Say) -> dict[str, Any]:
        """Report the groups that are due."""
        sample = take_sample(self._instance, now_s)
        if others := others_in_use(sample.instance):
            say(1, f"processes hold cores of {', '.join(others)} too: pass --instance to see them")
        of_runtimes = [
            {group.type: group.collect(sample) for group in groups if group.due_s <= now_s}
            for groups in self._of_runtimes
        ]
        of_system = {group.type: group.collect(sample) for group in self._of_system if group.due_s <= now_s}
        say(2, f"reported: {', '.join((*(name for groups in of_runtimes for name in groups), *of_system))}")
        return {
            "neuron_runtime_data": list(self._runtimes(sample, of_runtimes, say)),
            "system_data": of_system,
            "instance_info": report.instance_info(sample.instance),
            "neuron_hardware_info": report.neuron_hardware_info(sample.instance),
            "simulated": True,
        }

    def _runtimes(
        self, sample: Sample, of_runtimes: Sequence[Mapping[str, Mapping[int, Group]]], say: Say
    ) -> Iterator[dict[str, Any]]:
        for pid, process in sample.processes.items():
            filters = enumerate(self._config.neuron_runtimes)
            place = next((index for index, runtime in filters if runtime.tag_filter.search(process.tag)), None)
            if place is None:
                continue
            # A process stays in lines without its own group: to exporters, a line without one means that it ended.
            error = "" if process.status else f"process {process.tag} has no readable status"
            if error:
                say(1, error)
            yield {
                "pid": pid,
                "address": "",
                "neuron_runtime_tag": process.tag,
                "error": error,
                "report": {name: groups[pid] for name, groups in of_runtimes[place].items() if pid in groups},
            }


if __name__ == "__main__":
    sys.exit(main())
