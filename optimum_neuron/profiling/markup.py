"""Pieces of HTML: tables, chips, names that may break, and times for people.

>>> in_time(1234.5)
'1.23 ms'
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from ..base.wording import time_span


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
