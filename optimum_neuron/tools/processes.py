"""The processes that hold cores of a simulated instance, with their last statuses and their use of the host.

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.tools.processes import neuron_processes

for process in neuron_processes(INSTANCES["inf2.xlarge"]):
    print(process.pid, process.core_ids, process.hbm_bytes())
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Collection, Mapping

from ..base import env
from ..base.core import Choice
from ..hardware import INSTANCES, InstanceSpec, resolve_instance
from ..runtime import CATEGORIES, Row, Status, claimed_clusters, claims_folder, held_cores, read_status, watch
from .host import ProcessUse, process_use


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronProcess:
    """A process that holds cores of the instance."""

    pid: int | None
    """Its id; None where its record cannot be read."""
    command: str | None
    uses: tuple[Row, ...]
    """Its claims, one row for each core and model, see `held_cores`."""
    status: Status | None
    """Last status reported by the process, or None if unreadable."""

    @property
    def core_ids(self) -> tuple[int, ...]:
        """The cores that it holds, ascending."""
        return tuple(sorted({use["core_id"] for use in self.uses}))

    @property
    def tag(self) -> str:
        """Its name: NEURON_PROCESS_TAG, or else its id."""
        return self.status.tag if self.status else str(self.pid or "unknown")

    def models(self, core_ids: Collection[int]) -> tuple[str, ...]:
        """Names of the models on some of its cores."""
        names = (use["model"] for use in self.uses if use["core_id"] in core_ids)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def hbm_bytes(self, core_ids: Collection[int] | None = None) -> dict[str, int] | None:
        """Return HBM bytes by category on some of its cores, or on all; None without a status."""
        if self.status is None:
            return None
        cores = [core for core in self.status.cores if core_ids is None or core.core_id in core_ids]
        owners = [used for core in cores for used in core.hbm_bytes.values()]
        return {category: sum(used.get(category, 0) for used in owners) for category in CATEGORIES}


def neuron_processes(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[NeuronProcess]:
    """List the processes that hold cores of an instance, in the order of their first cores."""
    folder = claims_folder(instance, environ)
    uses: dict[int | None, list[Row]] = {}
    for row in held_cores(instance, environ=environ):
        uses.setdefault(row["pid"], []).append(row)
    return [
        NeuronProcess(
            pid=pid,
            command=rows[0]["command"],
            uses=tuple(rows),
            status=None if pid is None else read_status(folder, pid),
        )
        for pid, rows in uses.items()
    ]


def add_instance(parser: argparse.ArgumentParser) -> None:
    """The option `--instance`, the argument of `choose_instance`."""
    parser.add_argument(
        "--instance",
        metavar="NAME",
        help="simulated instance (default: OPTIMUM_NEURON_INSTANCE, or the one whose cores are held)",
    )


def choose_instance(name: str | None, *, environ: Mapping[str, str] = os.environ) -> Choice[InstanceSpec]:
    """The requested instance, or else the first one whose cores are held: each name has its own cores."""
    used = [instance for instance in _known(environ) if held_cores(instance, environ=environ)]
    if used and name is None and env.instance_type(environ) is None:
        return Choice(value=used[0], reason="processes hold cores of it")
    return resolve_instance(name, environ)


def others_in_use(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Other instances whose cores processes hold."""
    return [other.name for other in _known(environ) if other != instance and held_cores(other, environ=environ)]


def _known(environ: Mapping[str, str]) -> list[InstanceSpec]:
    return [*INSTANCES.values(), *claimed_clusters(environ)]


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
    """Read everything about an instance, or that whose cores are held, and ask the processes for simulated times."""
    chosen = choose_instance(instance).value
    watch(claims_folder(chosen))
    processes = {process.pid: process for process in neuron_processes(chosen) if process.pid is not None}
    hosts = {pid: process_use(pid) for pid in processes}
    return Sample(at_s=now_s, instance=chosen, processes=processes, hosts=hosts)
