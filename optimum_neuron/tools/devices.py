"""The devices of a simulated instance as tools show them: cores, memory, links, and the processes that hold cores.

It reads claims and statuses of processes (`processes.py`): who holds which core, for which model, with how much HBM.

    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.tools.devices import devices

    print(devices(INSTANCES["inf2.xlarge"])[0].core_ids)
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from ..hardware import TARGETS, InstanceSpec
from ..version import __version__
from .processes import NeuronProcess, neuron_processes

RUNTIME_VERSION = f"{__version__} (simulated)"
"""Place of the Neuron runtime's version in the real tools."""
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
    memory_bytes: int | None
    """HBM of the device that it uses; None without a readable status."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """A chip of the simulated instance."""

    index: int
    core_ids: tuple[int, ...]
    """Logical core IDs on the instance."""
    memory_bytes: int
    connected_to: tuple[int, ...] | None
    """Linked devices of its server; None if not documented."""
    processes: tuple[Process, ...]
    """Processes that hold its cores."""


def devices(instance: InstanceSpec, *, environ: Mapping[str, str] = os.environ) -> list[Device]:
    """List the devices of a simulated instance with the processes that hold their cores."""
    holders = neuron_processes(instance, environ=environ)
    per_device = TARGETS[instance.family].logical_cores_per_chip()
    cores = [tuple(range(first, first + per_device)) for first in range(0, instance.num_chips * per_device, per_device)]
    return [
        Device(
            index=index,
            core_ids=core_ids,
            memory_bytes=instance.chip.hbm_bytes,
            connected_to=_links(instance, index),
            processes=tuple(_on(holder, core_ids) for holder in holders if set(holder.core_ids) & set(core_ids)),
        )
        for index, core_ids in enumerate(cores)
    ]


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
    if in_server == 1:
        return ()
    topology, first = instance.chip.topology, index - index % in_server
    if topology == "chain":
        return tuple(other for other in (index - 1, index + 1) if first <= other < first + in_server)
    if topology == "ring":
        return tuple(dict.fromkeys(first + (index + step) % in_server for step in (-1, 1)))
    if "torus" not in topology or in_server != _TORUS**2:
        return None
    row, column = divmod(index - first, _TORUS)
    around = ((row - 1, column), (row, column - 1), (row + 1, column), (row, column + 1))
    return tuple(first + down % _TORUS * _TORUS + right % _TORUS for down, right in around)


def drawing(devices: Sequence[Device]) -> list[str]:
    """Return the lines of a drawing of links; one line that says so where they are not known or there are none.

    `--` and `|` join neighbors; `*` at both ends of a row or column is a link from the last device to the first one.
    """
    if any(device.connected_to is None for device in devices):
        return ["The links between these devices are not documented."]
    if not any(device.connected_to for device in devices):
        return ["The devices of this instance have no links to each other."]
    side = _TORUS if max(len(_linked(device)) for device in devices) > 2 else len(devices)
    rows = [devices[start : start + side] for start in range(0, len(devices), side)]
    lines: list[str] = []
    for place, row in enumerate(rows):
        server = place // _TORUS * _TORUS  # a torus has as many rows as columns
        first, last = rows[server], rows[min(server + _TORUS, len(rows)) - 1]
        if place == server and _wraps(first, last):
            lines.append(_columns("*", row))
        lines.append(_row(row))
        if row is not last:
            lines.append(_columns("|", row))
        elif _wraps(first, last):
            lines.append(_columns("*", row))
    return lines


def _linked(device: Device) -> tuple[int, ...]:
    return device.connected_to or ()


def _wraps(first: Sequence[Device], last: Sequence[Device]) -> bool:
    return first is not last and last[0].index in _linked(first[0])


def _row(row: Sequence[Device]) -> str:
    joined = "--".join(f"[{device.index:^4}]" for device in row)
    ring = len(row) > 2 and row[-1].index in _linked(row[0])
    return f"*-{joined}-*" if ring else f"  {joined}"


def _columns(mark: str, row: Sequence[Device]) -> str:
    return ("  " + "  ".join(f"{mark:^6}" for _ in row)).rstrip()
