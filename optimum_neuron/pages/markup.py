"""Pieces of HTML: whole pages without an address to fetch, sections, tables, chips, and times for people.

>>> in_time(1234.5)
'1.23 ms'
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from ..base.wording import time_span

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


def document(title: str, sections: Iterable[str], *, data: Mapping[str, Any], scripts: Iterable[str]) -> str:
    """A self-contained page: sections of HTML, and texts of scripts that draw in them from the data."""
    # JSON that cannot end the element that it is in.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.format(
        title=html.escape(title),
        css=part(__package__, "page.css"),
        body="\n".join(sections),
        data=text,
        js="".join(scripts),
    )


def header(
    where: str, title: str, facts: Iterable[tuple[str, str, str]], more: str = "", *, label: str = "simulated"
) -> str:
    """The head of a page: a card for each fact, its value, and a note; `more` is HTML."""
    badge = f'<span class="badge">{html.escape(label)}</span>'
    cards = "".join(
        f'<div class="card"><div class="what">{html.escape(what)}</div><div class="value">{html.escape(value)}</div>'
        f'<div class="note">{html.escape(note)}</div></div>'
        for what, value, note in facts
    )
    return (
        f'<header><p class="kicker">{badge} {html.escape(where)}</p>'
        f'<h1>{html.escape(title)}</h1><div class="cards">{cards}</div>{more}</header>'
    )


def section(anchor: str, title: str, lead: str, body: str) -> str:
    """A section with its heading; the lead is plain text, the body HTML."""
    lead = f'<p class="lead">{html.escape(lead)}</p>' if lead else ""
    return f'<section id="s-{anchor}"><h2>{title}</h2>{lead}{body}</section>'


def part(package: str | None, name: str) -> str:
    """Read a style sheet or script of a package."""
    return resources.files(package or "").joinpath(name).read_text(encoding="utf-8")


def table(titles: Iterable[str], rows: Iterable[Iterable[str]], *, identifier: str = "") -> str:
    """A table of cells that are HTML already; titles that begin with # are of numbers."""
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


def chip(bound: str) -> str:
    """Bound, with its color."""
    return f'<span class="chip"><i class="b-{bound}"></i>{bound}</span>'


def breakable(name: str) -> str:
    """A name that may go on in the next line behind its separators."""
    return re.sub(r"([./_])", r"\1<wbr>", html.escape(name))


def sorted_by(value: float, shown: str) -> str:
    """A cell that is sorted by its value."""
    return f'<data value="{value:.9g}">{shown}</data>'


def in_time(time_us: float) -> str:
    """A time in its largest unit."""
    return time_span(time_us / 1e6)
