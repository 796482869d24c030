"""The data of a profile for `page.js`: calls on cores, engines inside a call, points of the roofline.

json.dumps(drawn(profile, profile.rows()))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .graph import GraphProfile
from .kernels import KernelProfile
from .operators import BOUND_BY, ENGINES
from .profile import CallProfile, Profile
from .schedule import engine_lanes, windows
from .table import LAUNCH, Row

MAX_GRAPHS = 8
"""Graphs drawn in detail: the slowest ones."""
MAX_CALLS = 1500
"""Calls of a core that are drawn one by one; of more, neighbors are drawn as one."""

BOUND_OF_ENGINE: Mapping[str, str] = dict(BOUND_BY) | {LAUNCH: LAUNCH}
"""Bound of a graph, by its limiting resource."""
BOUNDS = (*BOUND_OF_ENGINE.values(), "unknown")
"""Possible bounds, in the order of the legend."""


def drawn(profile: Profile, rows: Sequence[Row]) -> dict[str, Any]:
    """Everything that is drawn, rows as points of the roofline; lists in place of dictionaries where there are many."""
    machine = profile.machines[0]
    shown = sorted(profile.graphs, key=lambda graph: -graph.num_calls * graph.device_us)[:MAX_GRAPHS]
    return {
        "bounds": BOUNDS,
        "engines": ENGINES,
        "clock_us": profile.clock_us,
        "cores": [{"id": core.core_id, "instance": core.instance} for core in profile.cores],
        "graphs": [graph.graph for graph in profile.graphs],
        "segments": list(_segments(profile)),
        "inside": [_inside(graph) for graph in shown],
        "kernels": [_kernel(kernel) for kernel in profile.kernels[:MAX_GRAPHS]],
        "machine": {
            "name": machine.target,
            "flops": machine.peak_flops_per_s,
            "dma": machine.dma_bytes_per_s,
            "hbm": machine.hbm_bytes_per_s,
        },
        "points": [_point(row) for row in rows if row.flops and row.time_us],
    }


def _segments(profile: Profile) -> Iterator[list[Any]]:
    """Calls of each core, as drawn: index of the core, graph, begin, end, number of calls, bound."""
    for place, core in enumerate(profile.cores):
        here = [call for call in profile.calls if core.core_id in call.core_ids]
        own = [call for call in here if profile.graphs[call.graph].instance == core.instance]
        together = -(-len(own) // MAX_CALLS)
        group: list[CallProfile] = []
        for call in own:
            if group and (group[-1].graph != call.graph or len(group) == together):
                yield _segment(profile, place, group)
                group = []
            group.append(call)
        if group:
            yield _segment(profile, place, group)


def _segment(profile: Profile, place: int, group: Sequence[CallProfile]) -> list[Any]:
    bound = BOUNDS.index(BOUND_OF_ENGINE[profile.graphs[group[0].graph].limited_by])
    begin, end = round(group[0].started_us, 3), round(group[-1].ended_us, 3)
    return [place, group[0].graph, begin, end, len(group), bound]


def _inside(graph: GraphProfile) -> dict[str, Any]:
    engines = list(ENGINES)
    return {
        "graph": graph.graph,
        "model": graph.model,
        "device_us": graph.device_us,
        "launch_us": graph.launch_us,
        "operators": [
            [one.operator, one.module_path, short_line(one.source_line), BOUNDS.index(one.bound), round(one.time_us, 4)]
            for one in graph.operators
        ],
        "windows": [round(span.started_us, 4) for span in windows(graph.operators, begin_us=graph.launch_us)],
        "lanes": [
            [engines.index(lane.engine), lane.index, round(lane.started_us, 4), round(lane.time_us, 4)]
            for lane in engine_lanes(graph.operators, begin_us=graph.launch_us)
        ],
    }


def _kernel(kernel: KernelProfile) -> dict[str, Any]:
    """Instructions of a kernel: engine, opcode, line, begin, time."""
    engines, lines = kernel.engines, list(dict.fromkeys(short_line(event.line) for event in kernel.events))
    places = {line: place for place, line in enumerate(lines)}
    return {
        "name": kernel.name,
        "total_us": kernel.total_us,
        "engines": engines,
        "lines": lines,
        "events": [
            [
                engines.index(event.engine),
                event.opcode,
                places[short_line(event.line)],
                round(event.started_us, 4),
                round(event.busy_us, 4),
            ]
            for event in kernel.events
        ],
    }


def _point(row: Row) -> list[Any]:
    return [
        row.operator,
        row.module_path,
        row.graph,
        row.flops / row.hbm_bytes if row.hbm_bytes else None,
        row.flops / row.alone_us * 1e6,
        row.share,
        BOUNDS.index(row.bound),
    ]


def short_line(source_line: str) -> str:
    """A file and line without the folders that differ between machines.

    >>> short_line("/home/me/code/optimum_neuron/models/common/layers.py:31")
    'optimum_neuron/models/common/layers.py:31'
    >>> short_line("/home/me/env/lib/python3.12/site-packages/transformers/models/bert/modeling_bert.py:12")
    'transformers/models/bert/modeling_bert.py:12'
    """
    for mark in ("/site-packages/", "/optimum_neuron/"):
        before, separator, after = source_line.rpartition(mark)
        if separator:
            return after if mark == "/site-packages/" else f"optimum_neuron/{after}"
    return "/".join(source_line.rsplit("/", 3)[-3:]) if source_line.startswith("/") else source_line
