"""An NKI kernel, or two versions of it, as a self-contained page: engines and memory over time, and the source.

A click on an instruction marks its line, and a click on a line marks its instructions. `kernel.js` draws.

    Path("kernel.html").write_text(kernel_page(analyze(kernel, x)))
"""

from __future__ import annotations

import ast
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..nki import ENGINES, Analysis, Comparison, LineChange, LineCost, compare, costs_of
from ..pages import breakable, document, header, in_time, part, section, table
from .kernels import MAX_EVENTS

_BOUNDS = ("compute", "DMA", "vector", "launch")
"""Colors of `page.css`."""
_COLORS = {"tensor": "compute", "dma": "DMA", "sync": "launch"}
"""Color of an engine; the others have that of the vector engine."""

_TIME = (
    "Each engine takes its instructions in their order, and all as early as data and room on the chip allow. Below, "
    "the bytes of each partition that tiles need. Drag to zoom, double-click to see all, click to see the line."
)
_SOURCE = "Lines with the time that their instructions keep engines busy. Click one to mark its instructions."
_LINES = (
    "What each line keeps engines busy, lines that moved most time first. Lines are matched by their text; engines "
    "overlap, so the times of lines do not add up to that of the kernel."
)


def kernel_page(analysis: Analysis, after: Analysis | None = None) -> str:
    """Return the page of a kernel, or of two versions side by side.

    Args:
        analysis: the kernel, or its first version.
        after: its second version.
    """
    comparison = None if after is None else compare(analysis, after)
    versions = {analysis.name: analysis} if after is None else _labelled(analysis, after)
    names = " and ".join(dict.fromkeys(version.name for version in versions.values()))
    sections = [_head(names, versions, comparison)]
    if comparison is not None:
        sections.append(section("lines", "What moved", _LINES, _line_table(comparison.lines)))
    for number, (label, version) in enumerate(versions.items()):
        sections += [
            section(f"time-{number}", f"Engines and memory of {html.escape(label)}", _TIME, _drawing(number)),
            section(f"source-{number}", f"Source of {html.escape(label)}", _SOURCE, _source(number, version)),
        ]
    sections.append(section("advice", "Advice of the guides", "", _advice_table(versions)))
    data = {"bounds": _BOUNDS, "versions": [_drawn(version) for version in versions.values()]}
    title = f"NKI kernel {names}, simulated"
    return document(
        title, sections, data=data, scripts=[part(__package__, name) for name in ("charts.js", "kernel.js")]
    )


def _labelled(first: Analysis, second: Analysis) -> dict[str, Analysis]:
    return {f"{first.name}, the first": first, f"{second.name}, the second": second}


def _head(names: str, versions: Mapping[str, Analysis], comparison: Comparison | None) -> str:
    facts = []
    for label, version in versions.items():
        share = f"{version.roofline_share:.0%} of the roofline, bound by {version.bound.value}"
        facts.append((label, in_time(version.total_us), share))
    if comparison is not None:
        difference = comparison.difference
        note = "results have different shapes" if difference is None else f"results differ by at most {difference:.2g}"
        facts.append(("second against first", f"{comparison.speedup:.3g} times as fast", note))
    else:
        memory = next(iter(versions.values())).memory
        facts += [(one.buffer.upper(), f"{one.peak / one.capacity:.0%}", f"{one.peak} bytes") for one in memory]
    return header(next(iter(versions.values())).target, names, facts)


def _drawing(number: int) -> str:
    return f'<div id="engines-{number}"></div><div id="memory-{number}"></div>'


def _source(number: int, analysis: Analysis) -> str:
    """The functions that executed instructions, line by line."""
    costs = {cost.line: cost for cost in costs_of(analysis)}
    largest = max((cost.total_us for cost in costs.values()), default=0.0) or 1.0
    rows = "".join(_source_row(line, text, costs.get(line), largest) for line, text in _source_lines(costs))
    return f'<div class="scroll"><table class="source" id="source-{number}"><tbody>{rows}</tbody></table></div>'


def _source_row(line: str, text: str, cost: LineCost | None, largest: float) -> str:
    number = line.rpartition(":")[2]
    code = f'<td><code class="line">{html.escape(text)}</code></td>'
    if cost is None:
        return f'<tr><td class="n dim">{number}</td><td></td><td></td>{code}</tr>'
    bar = f'<span class="share"><i class="b-compute" style="width:{cost.total_us / largest:.2%}"></i></span>'
    about = ", ".join(f"{engine} {in_time(us)}" for engine, us in cost.busy_us.items())
    about = f"{cost.num_instructions} instructions: {about}"
    cells = f'<td class="n dim">{number}</td><td class="n">{in_time(cost.total_us)}</td><td>{bar}</td>{code}'
    return f'<tr data-group="{html.escape(line)}" data-tip="{html.escape(about)}" tabindex="0">{cells}</tr>'


def _source_lines(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield file:line and text of each line of the outermost functions and classes that the given lines are in."""
    wanted: dict[str, set[int]] = {}
    for line in lines:
        file, _, number = line.rpartition(":")
        wanted.setdefault(file, set()).add(int(number))
    for file, numbers in wanted.items():
        if not Path(file).is_file():
            yield from ((f"{file}:{number}", "") for number in sorted(numbers))
            continue
        text = Path(file).read_text(encoding="utf-8")
        rows = text.splitlines()
        for node in ast.parse(text).body:
            first, last = _extent(node)
            if numbers & set(range(first, last + 1)):
                yield from ((f"{file}:{number}", rows[number - 1]) for number in range(first, last + 1))


def _extent(node: ast.stmt) -> tuple[int, int]:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    return min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno or node.lineno


def _line_table(lines: Sequence[LineChange]) -> str:
    titles = ("line", "source", "#first", "#second", "moved")
    return table(titles, (_line_cells(line) for line in lines))


def _line_cells(line: LineChange) -> Iterator[str]:
    shown = line.after or line.before
    assert shown is not None
    yield f"{line.kind} <code class='dim'>{breakable(Path(shown.line).name)}</code>"
    yield f"<code>{html.escape(shown.source)}</code>"
    yield "" if line.before is None else in_time(line.before.total_us)
    yield "" if line.after is None else in_time(line.after.total_us)
    moved = (f"{engine} {'-' if us < 0 else '+'}{in_time(abs(us))}" for engine, us in line.moved_us.items())
    yield html.escape(", ".join(moved))


def _advice_table(versions: Mapping[str, Analysis]) -> str:
    titles = ("kernel", "topic", "engine", "#instructions", "#time", "line", "advice", "source")
    rows = (
        (
            html.escape(label),
            html.escape(one.topic),
            one.engine,
            str(one.num_instructions),
            in_time(one.busy_us),
            f"<code>{breakable(Path(one.line).name)}</code>",
            html.escape(one.text),
            html.escape(one.source),
        )
        for label, version in versions.items()
        for one in version.advice
    )
    return table(titles, rows)


def _drawn(analysis: Analysis) -> dict[str, Any]:
    """Engines, instructions as [engine, color, opcode, line, begin, time], and bytes of memories from a time on."""
    events = analysis.events[:MAX_EVENTS]
    used = {event.record.engine for event in events}
    engines = [engine for engine in ENGINES if engine in used]
    starts = [event.start_ns / 1e3 for event in analysis.events]
    return {
        "total_us": analysis.total_us,
        "engines": engines,
        "events": [
            [
                engines.index(event.record.engine),
                _BOUNDS.index(_COLORS.get(event.record.engine, "vector")),
                event.record.opcode,
                event.record.line,
                round(event.start_ns / 1e3, 4),
                round(event.busy_ns / 1e3, 4),
            ]
            for event in events
        ],
        "memory": [
            {
                "name": one.buffer.upper(),
                "capacity": one.capacity,
                "levels": [
                    [round(starts[number] if number < len(starts) else analysis.total_us, 4), level]
                    for number, level in one.levels
                ],
            }
            for one in analysis.memory
            if one.peak
        ],
    }
