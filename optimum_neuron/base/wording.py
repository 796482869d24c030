"""Numbers with their nouns and units, as people read them. Data for programs stays in base units.

>>> from optimum_neuron.base.wording import counted, number, time_span
>>> counted(1, "request"), counted(2, "copy", "copies"), time_span(11.33), number(11330.0)
('1 request', '2 copies', '11.3 s', '11,330')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

_TIME_UNITS = ((7200.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (1e-3, 1e-3, "ms"))
"""Shortest span that is written in a unit, the length of the unit in seconds, and its name."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun in the singular or the plural, for example "1 request"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def listed(items: Sequence[str], most: int, *, separator: str = ", ") -> str:
    """Return the first items as text, and how many more there are.

    >>> listed(["a", "b"], 2), listed(["a", "b", "c"], 1, separator="; ")
    ('a, b', 'a; and 2 more')
    """
    rest = [f"and {len(items) - most} more"] if len(items) > most else []
    return separator.join([*items[:most], *rest])


def number(value: float, *, digits: int = 4) -> str:
    """Format a number with so many significant digits, in powers of ten only where it is below a ten-thousandth."""
    if not math.isfinite(value) or 0 < abs(value) < 1e-4:
        return f"{value:.{digits}g}"
    return f"{float(f'{value:.{digits}g}'):,.15g}"


def time_span(seconds: float) -> str:
    """Format a time span with three significant digits in a unit that fits: "11.3 s", "8.21 ms", "40.3 us"."""
    for shortest_s, unit_s, name in _TIME_UNITS:
        if seconds >= shortest_s:
            return f"{number(seconds / unit_s, digits=3)} {name}"
    return f"{number(seconds * 1e6, digits=3)} us"


def size(num_bytes: float) -> str:
    """Format a number of bytes with a binary unit.

    >>> size(512), size(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    power = min(max(int(num_bytes).bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{num_bytes / 1024**power:.{1 if power else 0}f} {units[power]}"


def duration(seconds: float) -> str:
    """Format a time span in its largest unit.

    >>> duration(90), duration(3 * 86400)
    ('90 s', '3 days')
    """
    for unit, length_s in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} s"


def first_line(error: Exception) -> str:
    """Return the class of an error and the first line of its message, which is long where it comes from a library."""
    line, _, _ = str(error).strip().partition("\n")
    return f"{type(error).__name__}: {line}"


def aligned(lines: Sequence[Sequence[str]], *, separator: str = "  ", right: bool = False) -> list[str]:
    """Return lines of cells with their columns under each other; `right` aligns all but the first to the right.

    >>> aligned([["core", "model"], ["0", "bert"]])
    ['core  model', '0     bert']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    others = str.rjust if right else str.ljust
    return [separator.join([line[0].ljust(widths[0]), *map(others, line[1:], widths[1:])]).rstrip() for line in lines]


def memory_table(sizes: Mapping[str, int], available_bytes: int) -> str:
    """Return a text table of bytes by category, their sum, and what is available, with shares of that.

    >>> print(memory_table({"weights": 2**30}, 2**34))
      weights        1.000 GiB    6.2%
      total          1.000 GiB    6.2%
      available     16.000 GiB  100.0%
    """
    rows = {**sizes, "total": sum(sizes.values()), "available": available_bytes}
    width = max(10, *map(len, rows))
    lines = (f"{name:<{width}} {size / 2**30:9.3f} GiB {size / available_bytes:7.1%}" for name, size in rows.items())
    return "\n".join(f"  {line}" for line in lines)
