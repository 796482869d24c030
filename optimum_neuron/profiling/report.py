"""A profile as one self-contained page: timeline, engines inside a call, roofline, tables. No address in it is fetched.

The tables are in the page; what is drawn, `page.js` draws from the data beside them, in the colors of `page.css`.

    Path("report.html").write_text(page(profile))
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Any

from .operators import ENGINES
from .profile import LAUNCH, CallProfile, GraphProfile, Profile, Row
from .schedule import engine_lanes, windows

MAX_ROWS = 200
"""Of the table of operators."""
MAX_GRAPHS = 8
"""Graphs whose inside is drawn: those that take most."""
MAX_CALLS = 1500
"""Calls of a core that are drawn one by one; of more, neighbors are drawn as one."""

BOUNDS = ("compute", "DMA", "vector", "link", "launch", "unknown")
"""What something can be bound by, in the order of the legend."""
_BOUND_OF_ENGINE = {"tensor": "compute", "dma": "DMA", "vector": "vector", "link": "link", "launch": "launch"}


def page(profile: Profile) -> str:
    """The page as text.

    Args:
        profile: what to show.
    """
    rows = profile.rows()
    shown = sorted(profile.graphs, key=lambda graph: -graph.num_calls * graph.device_us)[:MAX_GRAPHS]
    sections = (
        _head(profile),
        _section("timeline", "Timeline", _TIMELINE, '<div id="timeline" class="drawing"></div>'),
        _section("graphs", "Graphs", _GRAPHS, _graph_table(profile.graphs)),
        _section("inside", "Inside one call", _INSIDE, '<div id="tabs" class="tabs"></div><div id="lanes"></div>'),
        _section("roofline", "Roofline", _ROOFLINE, '<div id="roof" class="drawing"></div>'),
        _section("operators", "Operators", _rows_lead(rows), _operator_table(rows[:MAX_ROWS])),
        _section("cores", "Cores and memory", _MEMORY, _core_table(profile)),
        _section("assumptions", "Assumptions", "", _said(profile)),
    )
    data = {
        "bounds": BOUNDS,
        "engines": ENGINES,
        "clock_us": profile.clock_us,
        "cores": [{"id": core.core_id, "instance": core.instance} for core in profile.cores],
        "graphs": [graph.graph for graph in profile.graphs],
        "segments": list(_segments(profile)),
        "inside": [_inside(graph) for graph in shown],
        "machine": {
            "name": profile.machines[0].target,
            "flops": profile.machines[0].peak_flops_per_s,
            "dma": profile.machines[0].dma_bytes_per_s,
            "hbm": profile.machines[0].hbm_bytes_per_s,
        },
        "points": [_point(row) for row in rows[:MAX_ROWS] if row.flops and row.time_us],
    }
    return _PAGE.format(
        title=html.escape(f"Profile of {profile.name}, simulated"),
        css=_part("page.css"),
        body="\n".join(sections),
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        js=_part("page.js"),
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{css}</style>
</head>
<body>
<main>
{body}
</main>
<div id="tip" role="tooltip" hidden></div>
<script id="data" type="application/json">{data}</script>
<script>
{js}</script>
</body>
</html>
"""

_TIMELINE = (
    "Calls on each core, by what they are limited by. Between calls the clock goes as this host's, measured; during "
    "calls as the simulated cores'. Drag to zoom, double-click to see all."
)
_GRAPHS = (
    "One row for each entry point; times of one call. The host's part is what an estimate adds for the serving stack "
    "or for copies. Engines overlap: the bars show how much of the device time each one is busy."
)
_INSIDE = (
    "One call, operator by operator: every call of a graph takes the same time. Each engine takes operators in order; "
    "transfers come early where they hide behind earlier products. Drag to zoom, double-click to see all."
)
_ROOFLINE = (
    "Operations for each byte read from HBM against operations per second, of the rows of the table below, each as if "
    "it ran alone; areas show shares of the device time. What lies under a slope waits for data, what lies under the "
    "flat roof computes."
)
_MEMORY = "What the programs that ran need of each core, of its share of the HBM."


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _section(anchor: str, title: str, lead: str, body: str) -> str:
    lead = f'<p class="lead">{html.escape(lead)}</p>' if lead else ""
    return f'<section id="s-{anchor}"><h2>{title}</h2>{lead}{body}</section>'


def _head(profile: Profile) -> str:
    low, high = profile.interval_us
    where = ", ".join(f"{machine.instance} ({machine.target})" for machine in profile.machines)
    rows = profile.rows()
    longest = rows[0]
    facts = (
        ("device time", _time(profile.device_us), f"{len(profile.calls)} calls of {len(profile.graphs)} graphs"),
        ("device and host path", _time(profile.total_us), f"80 % interval {_time(low)} to {_time(high)}"),
        ("between calls", _time(profile.host_between_us), "this host, measured"),
        ("most time", f"{longest.share:.0%}", _in_words(longest)),
    )
    cards = "".join(
        f'<div class="card"><div class="what">{html.escape(what)}</div><div class="value">{html.escape(value)}</div>'
        f'<div class="note">{html.escape(note)}</div></div>'
        for what, value, note in facts
    )
    return (
        f'<header><p class="kicker"><span class="badge">simulated</span> {html.escape(where)}</p>'
        f"<h1>{html.escape(profile.name)}</h1>"
        f'<div class="cards">{cards}</div>{_bound_bar(rows)}</header>'
    )


def _in_words(row: Row) -> str:
    if row.operator == LAUNCH:
        return f"launches of {row.graph}"
    return f"{row.operator} in {row.graph}, bound by {row.bound}"


def _bound_bar(rows: Sequence[Row]) -> str:
    """One bar over the whole width: shares of the device time by what it is bound by, with its legend."""
    shares = {bound: sum(row.share for row in rows if row.bound == bound) for bound in BOUNDS}
    present = {bound: share for bound, share in shares.items() if share > 0}
    bars = "".join(
        f'<span class="b-{bound}" style="flex-grow:{share:.5f}" data-tip="{bound}: {share:.1%}"></span>'
        for bound, share in present.items()
    )
    keys = "".join(
        f'<span class="key"><i class="b-{bound}"></i>{_bound_title(bound)} <b>{share:.1%}</b></span>'
        for bound, share in present.items()
    )
    return f'<div class="stack" aria-hidden="true">{bars}</div><div class="legend">{keys}</div>'


def _bound_title(bound: str) -> str:
    return bound if bound in ("launch", "unknown") else f"bound by {bound}"


def _graph_table(graphs: Sequence[GraphProfile]) -> str:
    titles = ("graph", "model", "#calls", "#device", "#host path", "#total", "#80 % interval", "limited by", "engines")
    return _table(titles, (_graph_cells(graph) for graph in graphs))


def _graph_cells(graph: GraphProfile) -> Iterator[str]:
    yield f"<code>{html.escape(graph.graph)}</code>"
    yield html.escape(graph.model)
    yield str(graph.num_calls)
    yield _time(graph.device_us)
    yield _time(graph.path_us)
    yield f"<b>{_time(graph.total_us)}</b>"
    yield f"{_time(graph.low * graph.total_us)} to {_time(graph.high * graph.total_us)}"
    bound = _BOUND_OF_ENGINE[graph.limited_by]
    yield _chip(bound)
    busy = [(name, graph.parts_us[engine] / graph.device_us, engine) for engine, name in ENGINES.items()]
    yield "".join(
        f'<span class="meter"><span><i class="b-{_BOUND_OF_ENGINE[engine]}" style="width:{min(share, 1):.1%}"></i>'
        f"</span>{name} {share:.0%}</span>"
        for name, share, engine in busy
        if share
    )


def _chip(bound: str) -> str:
    return f'<span class="chip"><i class="b-{bound}"></i>{bound}</span>'


def _rows_lead(rows: Sequence[Row]) -> str:
    left_out = f" The first {MAX_ROWS} of {len(rows)} rows." if len(rows) > MAX_ROWS else ""
    return f"Equal operators of equal layers are one row. Click a heading to sort.{left_out}"


def _operator_table(rows: Sequence[Row]) -> str:
    titles = ("operator", "module", "source", "graph", "engine", "#calls", "#time", "#share", "bound by")
    filtering = '<input id="filter" type="search" placeholder="filter operators, modules, files" aria-label="filter">'
    largest = max(row.share for row in rows)
    return filtering + _table(titles, (_row_cells(row, largest) for row in rows), identifier="operators")


def _row_cells(row: Row, largest: float) -> Iterator[str]:
    yield f"<code>{_breakable(row.operator)}</code>"
    yield f"<code>{_breakable(row.module_path)}</code>"
    yield f'<code class="dim">{_breakable(short_line(row.source_line))}</code>'
    yield f'<code class="dim">{html.escape(row.graph)}</code>'
    yield html.escape(ENGINES.get(row.engine, ""))  # type: ignore[call-overload]
    yield _sorted_by(row.num_calls, str(row.num_calls))
    yield _sorted_by(row.time_us, _time(row.time_us))
    bar = f'<span class="share"><i class="b-{row.bound}" style="width:{row.share / largest:.2%}"></i></span>'
    yield _sorted_by(row.share, f"{bar}<span>{row.share:.1%}</span>")
    yield _chip(row.bound)


def _breakable(name: str) -> str:
    """A name that may go on in the next line behind its separators."""
    return re.sub(r"([./_])", r"\1<wbr>", html.escape(name))


def _sorted_by(value: float, shown: str) -> str:
    return f'<data value="{value:.9g}">{shown}</data>'


def _core_table(profile: Profile) -> str:
    capacity = {machine.instance: machine.hbm_bytes for machine in profile.machines}
    titles = ("core", "models", "#calls", "#busy", "HBM", "#of the core")

    def cells() -> Iterator[tuple[str, ...]]:
        for core in profile.cores:
            of = capacity[core.instance]
            bars = "".join(
                f'<i class="m-{name}" style="width:{size / of:.3%}" data-tip="{name}: {_size(size)}"></i>'
                for name, size in core.hbm_bytes.items()
            )
            told = ", ".join(f"{name} {_size(size)}" for name, size in core.hbm_bytes.items())
            used = sum(core.hbm_bytes.values())
            yield (
                f"{html.escape(core.instance)} NC {core.core_id}",
                html.escape(", ".join(core.models)),
                str(core.num_calls),
                _time(core.busy_us),
                f'<span class="memory">{bars}</span><span class="dim">{told}</span>',
                f"{_size(used)} ({used / of:.1%})",
            )

    keys = "".join(f'<span class="key"><i class="m-{name}"></i>{name}</span>' for name in profile.cores[0].hbm_bytes)
    return _table(titles, cells()) + f'<div class="legend">{keys}</div>'


def _said(profile: Profile) -> str:
    lines = [f"<li>{html.escape(line)}</li>" for line in profile.assumptions]
    lines += [f'<li class="note">{html.escape(line)}</li>' for line in profile.notes]
    lines += [
        f'<li class="note">{html.escape(name)} is not counted: its sizes depend on values ({one["num_calls"]} calls, '
        f"{one['share_of_calls']:.1%} of all)</li>"
        for name, one in profile.unknown_operators().items()
    ]
    return f"<ul>{''.join(lines)}</ul>"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]], *, identifier: str = "") -> str:
    """A table; titles that begin with # are of numbers."""
    titles = tuple(titles)
    classes = ['class="n"' if title.startswith("#") else "" for title in titles]
    heads = "".join(f"<th {of}>{title.lstrip('#')}</th>" for title, of in zip(titles, classes, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td {of}>{cell}</td>' for cell, of in zip(row, classes, strict=True))}</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table{f" id={identifier}" if identifier else ""}><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _segments(profile: Profile) -> Iterator[list[Any]]:
    """What is drawn of the calls of each core: index of the core, graph, begin, end, number of calls, bound."""
    for place, core in enumerate(profile.cores):
        own = [
            call
            for call in profile.calls
            if core.core_id in call.core_ids and profile.graphs[call.graph].instance == core.instance
        ]
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
    bound = BOUNDS.index(_BOUND_OF_ENGINE[profile.graphs[group[0].graph].limited_by])
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

    >>> short_line("/home/me/work/optimum_neuron/models/common/layers.py:31")
    'optimum_neuron/models/common/layers.py:31'
    >>> short_line("/home/me/env/lib/python3.12/site-packages/transformers/models/bert/modeling_bert.py:12")
    'transformers/models/bert/modeling_bert.py:12'
    """
    for mark in ("/site-packages/", "/optimum_neuron/"):
        before, found, after = source_line.rpartition(mark)
        if found:
            return after if mark == "/site-packages/" else f"optimum_neuron/{after}"
    return "/".join(source_line.rsplit("/", 3)[-3:]) if source_line.startswith("/") else source_line


def _time(time_us: float) -> str:
    for unit, length_us in (("s", 1e6), ("ms", 1e3)):
        if time_us >= length_us:
            return f"{time_us / length_us:.4g} {unit}"
    return f"{time_us:.3g} us"


def _size(size_bytes: float) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:.1f} {unit}"
    return f"{size_bytes / 2**10:.1f} KiB"
