"""A checked budget: each value beside its limit and the recorded value, and which operators moved it.

Recorded values are in a file beside the budget, `neuron.budget.json`, which belongs into version control.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..base.progress import Step
from ..errors import ConfigError
from ..files.atomic import write_bytes
from ..files.plain_json import parse_json
from .config import Entry, find_budget, read_budget
from .limits import LIMITS, Value
from .measure import Measured, measure

FORMAT = 1
MOVED = 0.001
"""Share of a value from which a change is one."""
_LAYER = re.compile(r"(?<=\.)\d+(-\d+)?(?=[.,]|$)")
"""Numbers of layers in the path of a module."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One value of an entry."""

    entry: str
    """Name of the entry."""
    kind: str
    """"model", "kernel", or "script"."""
    quantity: str
    """Name in `LIMITS`."""
    value: Value | None
    """The value now; None if there is none."""
    limit: Value | None
    """Its limit; None without one."""
    recorded: Value | None
    """The value of the last recorded run; None without one."""
    problem: str = ""
    """Why there is no value."""

    @property
    def passed(self) -> bool:
        """Whether it keeps its limit."""
        if self.limit is None:
            return True
        return self.value is not None and LIMITS[self.kind][self.quantity].keeps(self.value, limit=self.limit)

    @property
    def moved(self) -> bool:
        """Whether it differs from the recorded value."""
        if self.recorded is None or self.value is None:
            return False
        return abs(self.value - self.recorded) > MOVED * abs(self.recorded)

    @property
    def verdict(self) -> str:
        """What is to be said of it: whether it is past its limit, and how it moved."""
        parts = [] if self.passed else [self.problem or "past its limit"]
        if self.moved and not isinstance(self.value, bool) and self.recorded and self.value is not None:
            parts.append(f"{self.value / self.recorded - 1:+.1%}")
        return ", ".join(parts)

    @property
    def sentence(self) -> str:
        """The value beside its limit, in words."""
        value = f"is {shown(self.value)}" if self.value is not None else "has no value"
        return f"{self.quantity} of {self.entry} {value}, and its limit is {shown(self.limit)}. {self.problem}".strip()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        derived = {"passed": self.passed, "moved": self.moved, "verdict": self.verdict}
        return {**dataclasses.asdict(self), **derived}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetReport:
    """All values of a budget."""

    path: Path
    """The file of the budget."""
    rows: tuple[Row, ...]
    """Values with a limit, or that moved."""
    reasons: Mapping[str, tuple[str, ...]]
    """By entry whose values moved: options and versions that changed, then operators or instructions whose number or
    FLOPs did."""
    measured: Mapping[str, Measured]
    """By entry."""

    @property
    def passed(self) -> bool:
        """Whether every limit is kept."""
        return all(row.passed for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "simulated": True,
            "path": str(self.path),
            "passed": self.passed,
            "rows": [row.to_dict() for row in self.rows],
            "reasons": {name: list(texts) for name, texts in self.reasons.items()},
            "measured": {name: one.to_dict() for name, one in self.measured.items()},
        }

    def to_markdown(self) -> str:
        """Return it as a comment for a pull request."""
        lines = ["| entry | quantity | value | limit | recorded | |", "| --- | --- | ---: | ---: | ---: | --- |"]
        for row in self.rows:
            cells = (row.entry, row.quantity, shown(row.value), shown(row.limit), shown(row.recorded), row.verdict)
            lines.append(f"| {' | '.join(cells)} |")
        for name, texts in self.reasons.items():
            lines += ["", f"**{name}** moved:", *(f"- {text}" for text in texts)]
        return "\n".join([*lines, "", "All times are simulated.", ""])

    def to_junit(self) -> str:
        """Return it as JUnit XML: one test for each limit."""
        limited = [row for row in self.rows if row.limit is not None]
        failed = sum(not row.passed for row in limited)
        suite = ElementTree.Element("testsuite", name="neuron budget", tests=str(len(limited)), failures=str(failed))
        for row in limited:
            case = ElementTree.SubElement(suite, "testcase", classname=row.entry, name=row.quantity)
            if not row.passed:
                ElementTree.SubElement(case, "failure", message=row.sentence)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def record_file(path: str | Path) -> Path:
    """Return the file with the recorded values of a budget."""
    return Path(path).parent / "neuron.budget.json"


def check_budget(path: str | Path | None = None, *, record: bool = False) -> BudgetReport:
    """Measure every entry of a budget, and compare with its limits and with the recorded values.

    Args:
        path: the file; None: `neuron.toml` or `pyproject.toml` of the working folder.
        record: whether to write the values as the recorded ones.

    Raises:
        ConfigError: the file is not a budget, or an option is wrong.
        NeuronError: a model or kernel cannot be read.
    """
    path = find_budget() if path is None else Path(path)
    entries, recorded = read_budget(path), _recorded(record_file(path))
    measured = {}
    for entry in entries:
        with Step(f"Measuring {entry.name}"):
            measured[entry.name] = measure(entry)
    rows = [row for entry in entries for row in rows_of(entry, measured[entry.name], recorded.get(entry.name))]
    moved = list(dict.fromkeys(row.entry for row in rows if row.moved))
    reasons = {name: _reasons(measured[name], recorded[name]) for name in moved}
    if record:
        data = {"format": FORMAT, "entries": {name: one.to_dict() for name, one in measured.items()}}
        text = json.dumps(data, indent=1, sort_keys=True) + "\n"
        write_bytes(record_file(path), text.encode(), error=ConfigError)
    return BudgetReport(path=path, rows=tuple(rows), reasons=reasons, measured=measured)


def _recorded(path: Path) -> dict[str, Measured]:
    if not path.is_file():
        return {}
    try:
        data = parse_json(path.read_bytes())
        if data["format"] != FORMAT:
            raise ValueError(f"its format is {data['format']}, not {FORMAT}")
        entries = {name: Measured(**one) for name, one in data["entries"].items()}
        parts = [part for one in entries.values() for part in (one.values, one.operators, one.flops, one.moved_bytes)]
        if wrong := next(
            (value for part in parts for value in part.values() if not isinstance(value, (int, float))), ""
        ):
            raise ValueError(f"{wrong!r} is not a number")
        return entries
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        message = f"{path} is no record of a budget: {error}."
        raise ConfigError(message, hint="Remove it, and record again with --record.", path=str(path)) from error


def rows_of(entry: Entry, measured: Measured, recorded: Measured | None) -> list[Row]:
    """Return the values of an entry that have a limit, or that moved since the recorded run."""
    before = {} if recorded is None else recorded.values
    rows = [
        Row(
            entry=entry.name,
            kind=entry.kind,
            quantity=name,
            value=measured.values.get(name),
            limit=entry.limits.get(name),
            recorded=before.get(name),
            problem="" if name in measured.values else measured.problem or f"{entry.subject} has no {name}.",
        )
        for name in LIMITS[entry.kind]
        if name in entry.limits or name in measured.values
    ]
    return [row for row in rows if row.limit is not None or row.moved]


def _reasons(now: Measured, before: Measured, most: int = 8) -> tuple[str, ...]:
    """Say which options and versions changed, then which operators: by calls, or with the same calls by their sizes."""
    texts = []
    if before.given:
        names = [name for name in {**before.given, **now.given} if now.given.get(name) != before.given.get(name)]
        texts = [f"{name}: {before.given.get(name, 'not set')} -> {now.given.get(name, 'not set')}" for name in names]
    calls, work = _changes(now.operators, before.operators), _changes(now.flops, before.flops)
    moved = _changes(now.moved_bytes, before.moved_bytes) if before.moved_bytes else collections.Counter[str]()
    changed = {"FLOPs": work, "bytes": moved}

    def sizes(name: str) -> str:
        return ", ".join(f"{changes[name]:+.3g} {unit}" for unit, changes in changed.items() if changes[name])

    operators = [", ".join(filter(None, (f"{calls[name]:+d} {name}", sizes(name)))) for name in calls]
    operators += [f"{sizes(name)} of {name}" for name in dict.fromkeys((*work, *moved)) if name not in calls]
    texts += operators[:most]
    if len(operators) > most:
        texts.append(f"and {len(operators) - most} more operators")
    return tuple(texts) or ("the same options and operators: their sizes or the constants of estimates changed",)


def _changes(now: Mapping[str, int], before: Mapping[str, int]) -> collections.Counter[str]:
    """Return what there is more or less of, the largest change first; a model with more layers has more of the same."""
    changes = collections.Counter[str]()
    for sign, counts in ((1, now), (-1, before)):
        for name, count in counts.items():
            changes[_LAYER.sub("*", name)] += sign * count
    largest = sorted((name for name in changes if changes[name]), key=lambda name: (-abs(changes[name]), name))
    return collections.Counter({name: changes[name] for name in largest})


def shown(value: Value | None) -> str:
    """Return a value as text: four digits; nothing for None."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.3e}"
