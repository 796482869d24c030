"""`neuron-ls`: the devices of the simulated instance and the processes that hold their cores, as a table or as JSON.

The JSON is the list that the real tool prints, with `simulated` in each device and the names of models in each process.
Fields that a simulation does not have (PCI addresses, CPU affinity, NUMA nodes) are null.

    neuron-ls --json-output
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..cli import NeuronParser, Out, run_guarded, to_json
from ..hardware import InstanceSpec
from ..runtime import size_text
from .devices import RUNTIME_VERSION, Device, devices, drawing
from .processes import add_instance, choose_instance, others_in_use

_GIB = 2**30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-ls` and return its exit code."""
    parser = NeuronParser(
        prog="neuron-ls",
        description="List the devices of the simulated instance and the processes that hold their cores.",
    )
    parser.add_argument("-w", "--wide", action="store_true", help="show the ids of cores and the models on them too")
    parser.add_argument(
        "-a",
        "--show-all-procs",
        action="store_true",
        help="show every process on a device (no effect: all are always shown)",
    )
    parser.add_argument("-t", "--topology", action="store_true", help="draw the links between devices too")
    parser.add_argument("-j", "--json-output", action="store_true", help="print a JSON list of devices")
    add_instance(parser)
    options = parser.parse_args(arguments)

    def show(out: Out) -> None:
        instance = choose_instance(options.instance).value
        if others := others_in_use(instance):
            out.warning(f"processes hold cores of {', '.join(others)} too: pass --instance to see them")
        listed = devices(instance)
        if options.json_output:
            print(to_json([_plain(instance, device) for device in listed]), file=out.stdout)
        else:
            _table(out, instance, listed, wide=options.wide)
            if options.topology:
                out.text("Neuron Device Topology")
                for line in drawing(listed):
                    out.text(line)

    return run_guarded(show, Out("json" if options.json_output else "human"), command=parser.prog)


def _plain(instance: InstanceSpec, device: Device) -> dict[str, Any]:
    return {
        "neuron_device": device.index,
        "bdf": None,
        "cpu_affinity": None,
        "numa_node": None,
        "connected_to": device.connected_to,
        "nc_count": len(device.core_ids),
        "logical_neuroncore_config": instance.chip.default_lnc,
        "memory_size": device.memory_bytes,
        "neuroncore_ids": device.core_ids,
        "neuron_processes": [
            {
                "pid": process.pid,
                "command": process.command,
                "neuron_runtime_version": RUNTIME_VERSION,
                "neuroncore_ids": process.core_ids,
                "models": process.models,
                "memory_used_bytes": process.memory_bytes,
            }
            for process in device.processes
        ],
        "instance_type": instance.name,
        "simulated": True,
    }


def _table(out: Out, instance: InstanceSpec, listed: Sequence[Device], *, wide: bool) -> None:
    out.text(f"instance-type: {instance.name}")
    out.text("instance-id: simulated")
    out.text(f"logical-neuroncore-config: {instance.chip.default_lnc}")
    rows = [row for device in listed for row in _rows(device, wide=wide)]
    widest = max(rows, key=len)
    titles = list(widest)
    lines = [[row.get(title, "") for title in titles] for row in rows]
    widths = [max(map(len, column)) for column in zip(*zip(*titles, strict=True), *lines, strict=True)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"

    def line(cells: Sequence[str], place: str) -> str:
        return "| " + " | ".join(f"{cell:{place}{width}}" for cell, width in zip(cells, widths, strict=True)) + " |"

    out.text(rule)
    for title in zip(*titles, strict=True):
        out.text(line(title, "^"))
    out.text(rule)
    for cells in lines:
        out.text(line(cells, "<"))
    out.text(rule)


def _rows(device: Device, *, wide: bool) -> list[dict[tuple[str, str], str]]:
    """A row for each process of a device, below the two lines of a title; the first one describes the device."""
    links = device.connected_to
    head = {
        ("NEURON", "DEVICE"): str(device.index),
        ("NEURON", "CORES"): str(len(device.core_ids)),
        **({("NEURON", "CORE IDS"): _span(device.core_ids)} if wide else {}),
        ("NEURON", "MEMORY"): f"{device.memory_bytes // _GIB} GB",
        ("CONNECTED", "DEVICES"): "NA" if links is None else ", ".join(map(str, links)),
    }
    models = [f"{', '.join(process.models) or 'none yet'} on {_span(process.core_ids)}" for process in device.processes]
    rows = [
        {
            ("", "PID"): "NA" if process.pid is None else str(process.pid),
            ("", "COMMAND"): process.command or "NA",
            ("RUNTIME", "VERSION"): RUNTIME_VERSION,
            ("MEMORY", "USED"): "NA" if process.memory_bytes is None else size_text(process.memory_bytes),
            **({("", "MODELS"): on_cores} if wide else {}),
        }
        for process, on_cores in zip(device.processes, models, strict=True)
    ]
    first, *others = rows or [{}]
    return [head | first, *(dict.fromkeys(head, "") | row for row in others)]


def _span(core_ids: Sequence[int]) -> str:
    """IDs as the real tool prints them; those of a device that one process holds need not be neighbors."""
    first, last = core_ids[0], core_ids[-1]
    if len(core_ids) == 1:
        return str(first)
    return f"{first}-{last}" if last - first + 1 == len(core_ids) else ", ".join(map(str, core_ids))


if __name__ == "__main__":
    sys.exit(main())
