"""`neuron-bench exec`: the simulated times of the graphs of a NEFF or of an exported folder, on one core.

A simulated call always takes the same time, so there are no percentiles: a latency has the 80 % interval of the
performance model instead. Nothing is measured on this host. It does not depend on several cores and of collectives.

    neuron-bench exec model.neff
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.wording import time_span
from ..cli import NeuronParser, Out, run_guarded

if TYPE_CHECKING:
    from ..profiling import GraphProfile, Profile

_VALUES = (("-n", "--iterations"), ("-w", "--warmup"), ("-f", "--fill"))
_SWITCHES = ("--enable-only-latency", "--disable-hw-profile", "--disable-system-perf", "--disable-throughput")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-bench` and return its exit code."""
    parser = NeuronParser(prog="neuron-bench", description="Times of compiled programs, simulated.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("exec", help="show the simulated times of a NEFF or an exported folder")
    command.add_argument("neff", type=Path, metavar="PATH", help="NEFF or exported folder")
    command.add_argument("--fixed-nc-count", type=int, choices=(1,), default=1, help="cores: 1 is simulated")
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    ignored = command.add_argument_group("accepted without an effect, with a warning")
    for names in _VALUES:
        ignored.add_argument(*names, dest=names[1], metavar="VALUE")
    for name in _SWITCHES:
        ignored.add_argument(name, dest=name, action="store_true")
    options = parser.parse_args(arguments)
    out = Out("json" if options.json else "human")
    return run_guarded(lambda out: _run(options, out), out, command="neuron-bench exec")


def _run(options: argparse.Namespace, out: Out) -> None:
    from ..profiling import profile_compiled

    values = vars(options)
    ignored = [name for name in (*(names[1] for names in _VALUES), *_SWITCHES) if values[name]]
    if ignored:
        out.warning(f"{', '.join(ignored)} without an effect: every simulated call takes the same time")
    data = _times(profile_compiled(options.neff))
    out.result(data, human=_show, brief=str(data["graphs"][0]["latency_us"]["value"]))


def _times(profile: Profile) -> dict[str, Any]:
    return {
        "simulated": True,
        "name": profile.name,
        "instance": profile.machines[0].instance,
        "target": profile.machines[0].target,
        "num_cores": 1,
        "graphs": [_graph(graph) for graph in profile.graphs],
        "assumptions": list(profile.assumptions),
        "notes": list(profile.notes),
    }


def _graph(graph: GraphProfile) -> dict[str, Any]:
    """Times of one call: on the core (`nc_latency_us`), and including the host overhead of the instance."""
    return {
        "graph": graph.graph,
        "nc_latency_us": graph.device_us,
        "latency_us": {"value": graph.total_us, "low": graph.low * graph.total_us, "high": graph.high * graph.total_us},
        "calls_per_s": 1e6 / graph.total_us,
        "limited_by": graph.limited_by,
    }


def _show(out: Out, data: Mapping[str, Any]) -> None:
    out.text(f"times of {data['name']} on one core of {data['instance']} ({data['target']}): simulated")
    rows = [
        {
            "graph": graph["graph"],
            "device ms": graph["nc_latency_us"] / 1e3,
            "latency ms": graph["latency_us"]["value"] / 1e3,
            "80 % interval": " to ".join(time_span(graph["latency_us"][end] / 1e6) for end in ("low", "high")),
            "calls per s": graph["calls_per_s"],
            "limited by": graph["limited_by"],
        }
        for graph in data["graphs"]
    ]
    out.table(rows)
    out.remarks(data)


if __name__ == "__main__":
    sys.exit(main())
