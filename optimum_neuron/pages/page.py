"""A page that collects sections and plots, and becomes a self-contained document or a part of another page.

Text is escaped here; only what ends in `_html` is HTML already. A plot is plain data that `plots.js` draws with
Observable Plot, so its numbers are those of the data that the page was made from.

    page = Page("Estimate of m, simulated")
    page.section("memory", "Memory", "", page.stacked("memory", [{"row": "core", "part": "weights", "value": 1}]))
    page.text()
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .markup import document, header, part, section, table

LIBRARIES = ("d3.min.js", "plot.umd.min.js")
"""Files of `vendor/`, in the order in which they are loaded."""
_START = 'drawPlots(document, JSON.parse(document.getElementById("data").textContent).plots);\n'
Rows = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a plot."""

    label: str
    unit: str = ""
    """"ms", "s", "usd", "bytes" (as GiB), "%", or another: decides how ticks are written."""
    log: bool = False


@dataclasses.dataclass
class Page:
    """Sections of one page, and the data of its plots."""

    title: str
    sections: list[str] = dataclasses.field(default_factory=list)
    plots: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    facts: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    """Of the head: what, value, and note."""

    def head(self, where: str, title: str, facts: Iterable[tuple[str, str, str]], *, label: str = "simulated") -> None:
        """Add the head of the page: a card for each fact, its value, and a note."""
        self.facts = list(facts)
        self.sections.append(header(where, title, self.facts, label=label))

    def section(self, anchor: str, title: str, lead: str, body_html: str) -> None:
        """Add a section; one without a body is left out."""
        if body_html:
            self.sections.append(section(anchor, html.escape(title), lead, body_html))

    def remarks(self, data: Mapping[str, Any]) -> None:
        """Add the assumptions and notes of a result."""
        lines = [f"<li>{html.escape(line)}</li>" for line in data.get("assumptions", ())]
        lines += [f'<li class="note">{html.escape(line)}</li>' for line in data.get("notes", ())]
        self.section("assumptions", "Assumptions", "", f"<ul>{''.join(lines)}</ul>" if lines else "")

    def scatter(self, name: str, points: Rows, x: Axis, y: Axis) -> str:
        """Return a plot of points `{x, x_low, x_high, y, y_low, y_high, group, front, label, tip}`.

        Points with `front` are connected and have their label.
        """
        return self._plot(name, "scatter", points, x=x, y=y)

    def lines(self, name: str, points: Rows, x: Axis, y: Axis) -> str:
        """Return a plot of lines through points `{x, y, low, high, series, tip}`; low and high are None for no band."""
        return self._plot(name, "lines", points, x=x, y=y)

    def stacked(self, name: str, rows: Rows, *, limits: Rows = (), unit: str = "bytes") -> str:
        """Return horizontal bars of parts `{row, part, value, tip}`, and marks at limits `{row, value, tip}`."""
        return self._plot(
            name, "stacked", rows, x=Axis(label="GiB" if unit == "bytes" else unit, unit=unit), limits=_plain(limits)
        )

    def bars(self, name: str, rows: Rows, x: Axis) -> str:
        """Return horizontal bars `{row, value, low, high, group, tip}`; low and high are None for no interval."""
        return self._plot(name, "bars", rows, x=x)

    def _plot(self, name: str, kind: str, rows: Rows, **more: Any) -> str:
        if not rows:
            return ""
        axes = {key: dataclasses.asdict(value) if isinstance(value, Axis) else value for key, value in more.items()}
        self.plots[name] = {"kind": kind, "rows": _plain(rows), **axes}
        return f'<figure class="plot" data-plot="{html.escape(name)}"></figure>'

    def to_dict(self) -> dict[str, Any]:
        """Return the page as a part of another one: its HTML, and the data of its plots."""
        return {"title": self.title, "html": "\n".join(self.sections), "plots": self.plots}

    def text(self) -> str:
        """Return the page as a document."""
        scripts = [plot_script(), _START] if self.plots else []
        return document(self.title, self.sections, data={"plots": self.plots}, scripts=scripts)


def plot_script() -> str:
    """Return the JavaScript that draws plots: the libraries, and `drawPlots`."""
    return "".join([*(part(f"{__package__}.vendor", name) for name in LIBRARIES), part(__package__, "plots.js")])


def rows_table(rows: Iterable[Mapping[str, object]]) -> str:
    """Return a table of plain values, which are escaped; columns that begin with # are numbers."""
    rows = list(rows)
    if not rows:
        return ""
    columns = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    cells = (tuple(html.escape("" if row[name] is None else str(row[name])) for name in columns) for row in rows)
    return table(map(html.escape, columns), cells)


def _plain(rows: Rows) -> list[dict[str, Any]]:
    """Copy rows without infinity, which JSON does not have."""
    return [
        {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
        for row in rows
    ]
