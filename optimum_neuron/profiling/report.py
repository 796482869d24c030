"""A profile as one self-contained page: timeline, engines inside a call, roofline, tables. No address in it is fetched.

The tables are in the page; `charts.js` and `page.js` draw the charts from embedded data, in the colors of `page.css`.

    Path("report.html").write_text(page(profile))
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from ..base import wording
from ..pages import breakable, chip, document, header, in_time, part, section, sorted_by, table
from .drawing import BOUND_OF_ENGINE, BOUNDS, drawn, short_line
from .graph import GraphProfile
from .kernels import KernelProfile
from .operators import ENGINES
from .profile import Profile
from .table import LAUNCH, Row

MAX_ROWS = 200
"""Of the table of operators."""


def page(profile: Profile) -> str:
    """The page as text."""
    rows = profile.rows()
    sections = (
        _head(profile, rows),
        section("timeline", "Timeline", _TIMELINE, '<div id="timeline" class="drawing"></div>'),
        section("graphs", "Graphs", _GRAPHS, _graph_table(profile.graphs)),
        section("inside", "Inside one call", _INSIDE, '<div id="tabs" class="tabs"></div><div id="lanes"></div>'),
        _kernel_section(profile.kernels),
        section("roofline", "Roofline", _ROOFLINE, '<div id="roof" class="drawing"></div>'),
        section("operators", "Operators", _rows_lead(rows), _operator_table(rows[:MAX_ROWS])),
        section("cores", "Cores and memory", _MEMORY, _core_table(profile)),
        section("assumptions", "Assumptions", "", _said(profile)),
    )
    title = f"Profile of {profile.name}, simulated"
    return document(
        title,
        sections,
        data=drawn(profile, rows[:MAX_ROWS]),
        scripts=[part(__package__, name) for name in ("charts.js", "page.js")],
    )


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
_KERNELS = (
    "NKI kernels in these graphs, instruction by instruction: each engine takes its instructions in their order, and "
    "all as early as data and room on the chip allow. Drag to zoom, double-click to see all."
)
_ROOFLINE = (
    "Operations for each byte read from HBM against operations per second, of the rows of the table below, each as if "
    "it ran alone; areas show shares of the device time. What lies under a slope waits for data, what lies under the "
    "flat roof computes."
)
_MEMORY = "What the programs that ran need of each core, of its share of the HBM."


def _head(profile: Profile, rows: Sequence[Row]) -> str:
    low, high = profile.interval_us
    where = ", ".join(f"{machine.instance} ({machine.target})" for machine in profile.machines)
    what = f"{rows[0].operator} in {rows[0].graph}, bound by {rows[0].bound}"
    if rows[0].operator == LAUNCH:
        what = f"launches of {rows[0].graph}"
    facts = (
        ("device time", in_time(profile.device_us), f"{len(profile.calls)} calls of {len(profile.graphs)} graphs"),
        ("device and host path", in_time(profile.total_us), f"80 % interval {in_time(low)} to {in_time(high)}"),
        ("between calls", in_time(profile.host_between_us), "this host, measured"),
        ("most time", f"{rows[0].share:.0%}", what),
    )
    return header(where, profile.name, facts, _bound_bar(rows))


def _bound_bar(rows: Sequence[Row]) -> str:
    """One bar over the whole width: shares of the device time by bound, with its legend."""
    shares = {bound: sum(row.share for row in rows if row.bound == bound) for bound in BOUNDS}
    present = {bound: share for bound, share in shares.items() if share > 0}
    bars = "".join(
        f'<span class="b-{bound}" style="flex-grow:{share:.5f}" data-tip="{bound}: {share:.1%}"></span>'
        for bound, share in present.items()
    )
    titles = {"launch": "launch", "unknown": "unknown"}
    keys = "".join(
        f'<span class="key"><i class="b-{bound}"></i>{titles.get(bound, f"bound by {bound}")} <b>{share:.1%}</b></span>'
        for bound, share in present.items()
    )
    return f'<div class="stack" aria-hidden="true">{bars}</div><div class="legend">{keys}</div>'


def _graph_table(graphs: Sequence[GraphProfile]) -> str:
    titles = ("graph", "model", "#calls", "#device", "#host path", "#total", "#80 % interval", "limited by", "engines")
    return table(titles, (_graph_cells(graph) for graph in graphs))


def _graph_cells(graph: GraphProfile) -> Iterator[str]:
    yield f"<code>{html.escape(graph.graph)}</code>"
    yield html.escape(graph.model)
    yield str(graph.num_calls)
    yield in_time(graph.device_us)
    yield in_time(graph.path_us)
    yield f"<b>{in_time(graph.total_us)}</b>"
    yield f"{in_time(graph.low * graph.total_us)} to {in_time(graph.high * graph.total_us)}"
    yield chip(BOUND_OF_ENGINE[graph.limited_by])
    busy = [(name, graph.parts_us[engine] / graph.device_us, engine) for engine, name in ENGINES.items()]
    yield "".join(
        f'<span class="meter"><span><i class="b-{BOUND_OF_ENGINE[engine]}" style="width:{min(share, 1):.1%}"></i>'
        f"</span>{name} {share:.0%}</span>"
        for name, share, engine in busy
        if share
    )


def _kernel_section(kernels: Sequence[KernelProfile]) -> str:
    """Engine timeline of each kernel; nothing where there is none."""
    if not kernels:
        return ""
    titles = ("kernel", "target", "#launches", "#instructions", "#time of one", "#of the roofline", "bound by")
    rows = (
        (
            f"<code>{html.escape(one.name)}</code>",
            html.escape(one.target),
            str(one.num_launches),
            str(one.num_instructions),
            in_time(one.total_us),
            f"{one.roofline_share:.0%}",
            html.escape(one.bound),
        )
        for one in kernels
    )
    drawing = '<div id="kernel-tabs" class="tabs"></div><div id="kernel-lanes"></div>'
    return section("kernels", "Kernels", _KERNELS, table(titles, rows) + drawing)


def _rows_lead(rows: Sequence[Row]) -> str:
    left_out = f" The first {MAX_ROWS} of {len(rows)} rows." if len(rows) > MAX_ROWS else ""
    return f"Equal operators of equal layers are one row. Click a heading to sort.{left_out}"


def _operator_table(rows: Sequence[Row]) -> str:
    titles = ("operator", "module", "source", "graph", "engine", "#calls", "#time", "#share", "bound by")
    filtering = '<input id="filter" type="search" placeholder="filter operators, modules, files" aria-label="filter">'
    largest = max(row.share for row in rows)
    return filtering + table(titles, (_row_cells(row, largest) for row in rows), identifier="operators")


def _row_cells(row: Row, largest: float) -> Iterator[str]:
    yield f"<code>{breakable(row.operator)}</code>"
    yield f"<code>{breakable(row.module_path)}</code>"
    yield f'<code class="dim">{breakable(short_line(row.source_line))}</code>'
    yield f'<code class="dim">{html.escape(row.graph)}</code>'
    yield html.escape(ENGINES.get(row.engine, ""))  # type: ignore[call-overload]
    yield sorted_by(row.num_calls, str(row.num_calls))
    yield sorted_by(row.time_us, in_time(row.time_us))
    bar = f'<span class="share"><i class="b-{row.bound}" style="width:{row.share / largest:.2%}"></i></span>'
    yield sorted_by(row.share, f"{bar}<span>{row.share:.1%}</span>")
    yield chip(row.bound)


def _core_table(profile: Profile) -> str:
    capacity = {machine.instance: machine.hbm_bytes for machine in profile.machines}
    titles = ("core", "models", "#calls", "#busy", "HBM", "#of the core")

    def cells() -> Iterator[tuple[str, ...]]:
        for core in profile.cores:
            of = capacity[core.instance]
            bars = "".join(
                f'<i class="m-{name}" style="width:{size / of:.3%}" data-tip="{name}: {wording.size(size)}"></i>'
                for name, size in core.hbm_bytes.items()
            )
            sizes = ", ".join(f"{name} {wording.size(size)}" for name, size in core.hbm_bytes.items())
            used = sum(core.hbm_bytes.values())
            yield (
                f"{html.escape(core.instance)} NC {core.core_id}",
                html.escape(", ".join(core.models)),
                str(core.num_calls),
                in_time(core.busy_us),
                f'<span class="memory">{bars}</span><span class="dim">{sizes}</span>',
                f"{wording.size(used)} ({used / of:.1%})",
            )

    keys = "".join(f'<span class="key"><i class="m-{name}"></i>{name}</span>' for name in profile.cores[0].hbm_bytes)
    return table(titles, cells()) + f'<div class="legend">{keys}</div>'


def _said(profile: Profile) -> str:
    lines = [f"<li>{html.escape(line)}</li>" for line in profile.assumptions]
    lines += [f'<li class="note">{html.escape(line)}</li>' for line in profile.notes]
    lines += [
        f'<li class="note">{html.escape(name)} is not counted: its sizes depend on values ({one["num_calls"]} calls, '
        f"{one['share_of_calls']:.1%} of all)</li>"
        for name, one in profile.unknown_operators().items()
    ]
    return f"<ul>{''.join(lines)}</ul>"
