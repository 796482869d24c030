"""The devices of a simulated instance as tools show them: cores, memory, links, and the processes that hold cores.

It reads claims and statuses of processes (`processes.py`): who holds which core, for which model, with how much HBM.

    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.tools.devices import devices

    print(devices(INSTANCES["inf2.xlarge"])[0].core_ids)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from ..hardware import TARGETS, InstanceSpec
from ..version import __version__
from .processes import NeuronProcess, neuron_processes

RUNTIME_VERSION = f"{__version__} (simulated)"
"""Where the real tools show the version of the Neuron runtime."""
_TORUS = 4
"""Side of the torus in a server of 16 Trainium or Trainium2 chips."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Process:
    """A process that holds cores of a device."""

    pid: int | None
    """None if the claim cannot be read."""
    command: str | None
    core_ids: tuple[int, ...]
    """Cores of this device that it holds."""
    models: tuple[str, ...]
    """Names of the models on them."""
    memory_bytes: int | None
    """HBM of the device that it uses; None without a readable status."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A chip of the simulated instance."""

    index: int
    core_ids: tuple[int, ...]
    """Logical core IDs on the instance."""
    memory_bytes: int
    """HBM of the device."""
    connected_to: tuple[int, ...] | None
    """Linked devices of its server; None if not documented."""
    processes: tuple[Process, ...]
    """Processes that hold its cores."""


def devices(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[Device]:
    """List the devices of a simulated instance with the processes that hold their cores.

    Raises:
        ConfigError: the folder of the claims cannot be used.
    """
    holders = neuron_processes(instance, environ=environ)
    per_device = TARGETS[instance.family].logical_cores_per_chip()
    listed = []
    for index in range(instance.num_chips):
        core_ids = tuple(range(index * per_device, (index + 1) * per_device))
        listed.append(
            Device(
                index=index,
                core_ids=core_ids,
                memory_bytes=instance.chip.hbm_bytes,
                connected_to=_links(instance, index),
                processes=tuple(_on(holder, core_ids) for holder in holders if set(holder.core_ids) & set(core_ids)),
            )
        )
    return listed


def _on(holder: NeuronProcess, core_ids: tuple[int, ...]) -> Process:
    hbm = holder.hbm_bytes(core_ids)
    return Process(
        pid=holder.pid,
        command=holder.command,
        core_ids=tuple(core for core in holder.core_ids if core in core_ids),
        models=holder.models(core_ids),
        memory_bytes=None if hbm is None else sum(hbm.values()),
    )


def _links(instance: InstanceSpec, index: int) -> tuple[int, ...] | None:
    """Neighbors of a device by the topology of its chip, in the order up, left, down, right in a torus.

    Source: Neuron docs, topology of Inf1, Inf2, Trn1 and Trn2 instances.
    """
    in_server = instance.num_chips // instance.num_servers
    if instance.num_chips == 1:
        return ()
    topology = instance.chip.topology
    if topology == "chain":
        return tuple(other for other in (index - 1, index + 1) if 0 <= other < in_server)
    if topology == "ring":
        return tuple(dict.fromkeys(((index - 1) % in_server, (index + 1) % in_server)))
    if "torus" not in topology or in_server != _TORUS**2:
        return None
    first = index - index % in_server
    row, column = divmod(index - first, _TORUS)
    around = ((row - 1, column), (row, column - 1), (row + 1, column), (row, column + 1))
    return tuple(first + down % _TORUS * _TORUS + right % _TORUS for down, right in around)
