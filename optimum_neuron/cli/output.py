"""The output of a command: data on stdout, messages on stderr, in three modes.

    human   tables and text; colors only on a terminal, never with NO_COLOR; plain lines into a pipe
    json    one JSON document, nothing else, on stdout
    quiet   the single value that a script wants, on stdout

A command builds one dictionary and hands it to `Out.result` once. `--json` prints that dictionary; the human
view is rendered from the same one. This module knows no command and no error type.

    >>> import io
    >>> from optimum_neuron.cli.output import Out
    >>> stream = io.StringIO()
    >>> out = Out("human", stdout=stream)
    >>> out.result({"size_bytes": 2048}, human=lambda out, data: out.text(f"size {data['size_bytes']}"), brief="2048")
    >>> stream.getvalue()
    'size 2048\\n'
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal

from ..base.wording import number, size

if TYPE_CHECKING:
    from rich.console import Console

Mode = Literal["human", "json", "quiet"]

_PIPE_WIDTH = 100_000
"""Columns assumed where there is no terminal: lines in a pipe are never wrapped."""
_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "hit": "green", "miss": "yellow"}
"""Colors only, no bold: rich drops colors by itself when NO_COLOR is set."""


class Out:
    """Prints the output of a command, on the current `sys.stdout` and `sys.stderr` by default."""

    def __init__(self, mode: Mode = "human", *, stdout: IO[str] | None = None, stderr: IO[str] | None = None) -> None:
        self.mode: Mode = mode
        self.stdout: IO[str] = sys.stdout if stdout is None else stdout
        self.stderr: IO[str] = sys.stderr if stderr is None else stderr
        self.pipe_closed = False
        """True once the reader of stdout has gone away."""

    def result(self, data: Mapping[str, Any], *, human: Callable[[Out, Mapping[str, Any]], None], brief: str) -> None:
        """Print the answer of a command, once: all of it as JSON, as `human` renders it, or its `brief` value."""
        if self.mode == "json":
            self._data(to_json(data))
        elif self.mode == "quiet":
            self._data(brief)
        else:
            human(self, data)

    def text(self, line: str = "") -> None:
        """Print a line of data; silent in json and quiet mode."""
        if self.mode == "human":
            self._data(line)

    def table(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (), *, title: str = "") -> None:
        """Print rows as a table; silent in json and quiet mode.

        Args:
            rows: One dictionary per row; a missing key is an empty cell.
            columns: The keys to show, in order (default: all); one that is empty in every row is left out.
        """
        if self.mode != "human":
            return
        from rich.table import Table
        from rich.text import Text

        keys = columns or dict.fromkeys(key for row in rows for key in row)
        shown = [column for column in keys if any(row.get(column) not in (None, "") for row in rows)]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="cyan")
        for column in shown:
            numbers = all(isinstance(row.get(column), (int, float)) for row in rows)
            table.add_column(column.replace("_", " "), justify="right" if numbers else "left", overflow="fold")
        for row in rows:
            cells = [cell(row.get(column)) for column in shown]
            table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in cells))
        console = self._console(self.stdout)
        with console.capture() as capture:
            console.print(table)
        if title:
            self._data(title)
        self._data("\n".join(line.rstrip() for line in capture.get().rstrip("\n").split("\n")))

    def remarks(self, data: Mapping[str, Any]) -> None:
        """Print the assumptions and notes of an answer, a line each."""
        for key, label in (("assumptions", "assumed"), ("notes", "note")):
            for line in data.get(key, ()):
                self.text(f"{label}: {line}")

    def hint(self, command: str) -> None:
        """Name the next command on stderr; silent in json and quiet mode."""
        if self.mode == "human":
            self._talk("next", "cyan", command)

    def warning(self, message: str) -> None:
        """Print a warning on stderr, in every mode."""
        self._talk("warning", "yellow", message)

    def error(self, parts: Mapping[str, Any], *, next_command: str) -> None:
        """Print the parts of an error (`NeuronError.to_dict`): lines on stderr, or in json mode an object on stdout."""
        if self.mode == "json":
            self._data(to_json({"error": {**parts, "next_command": next_command}}))
            return
        self._talk("error", "red", "\n".join(filter(None, (parts["message"], parts["hint"]))))
        self._talk("next", "cyan", next_command)

    def flush(self) -> None:
        """Flush the streams."""
        try:
            self.stdout.flush()
        except BrokenPipeError:
            self.pipe_closed = True
            raise

    def _data(self, text: str) -> None:
        try:
            print(text, file=self.stdout)
        except BrokenPipeError:
            self.pipe_closed = True
            raise

    def _talk(self, label: str, style: str, message: str) -> None:
        from rich.text import Text

        first, *rest = message.split("\n")
        lines = [first, *(f"  {line}" for line in rest)]
        self._console(self.stderr).print(Text.assemble((f"{label}: ", style), "\n".join(lines)), soft_wrap=True)

    @staticmethod
    def _console(stream: IO[str]) -> Console:
        from rich.console import Console

        terminal = stream.isatty()
        return Console(
            file=stream,
            force_terminal=terminal,
            width=None if terminal else _PIPE_WIDTH,
            highlight=False,
            markup=False,
            emoji=False,
        )


def cell(value: object) -> str:
    """Format one value for a person: floats with four significant digits, lists joined, None empty.

    >>> cell(0.123456), cell([1, 128]), cell(True), cell(None)
    ('0.1235', '1, 128', 'yes', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={cell(item)}" for key, item in value.items())
    return str(value)


def value_of(choice: object) -> Any:
    """The value of a `Choice.to_dict()`; any other value as it is."""
    return choice.get("value") if isinstance(choice, Mapping) else choice


def choice_rows(data: Mapping[str, Any], labels: Mapping[str, str], *, column: str) -> list[dict[str, str]]:
    """Turn automatic choices into rows of a table: what, value, reason.

    Args:
        data: Holds plain values or those of `Choice.to_dict()`.
        labels: Keys to show, with their labels; a missing key or None is left out.
    """
    rows = []
    for name, label in labels.items():
        value = value_of(data.get(name))
        if value is not None:
            reason = data[name].get("reason") if isinstance(data[name], Mapping) else None
            rows.append({"what": label, column: cell(value), "reason": cell(reason)})
    return rows


def show_memory(
    out: Out,
    hbm_bytes: Mapping[str, int],
    share: Callable[[float], str] = "{:.1%}".format,
    *,
    title: str = "HBM of one core, simulated",
) -> None:
    """Render the HBM of a core by category; `available` is what the shares are of."""
    rows = [
        {"category": name, "size": size(value), "of the core": share(value / hbm_bytes["available"])}
        for name, value in hbm_bytes.items()
    ]
    out.table(rows, title=title)


def memory_title(report: Mapping[str, Any]) -> str:
    """Return the title of a table of memory, for a report with `num_cores` and `config`.

    >>> memory_title({"num_cores": {"value": 8}, "config": {"pipeline_parallel_size": 2}})
    'HBM of each of 4 cores of the fullest stage, simulated'
    """
    num_cores = value_of(report.get("num_cores")) or 1
    num_stages = (report.get("config") or {}).get("pipeline_parallel_size", 1)
    cores = "one core" if num_cores == num_stages else f"each of {num_cores // num_stages} cores"
    return f"HBM of {cores}{' of the fullest stage' if num_stages > 1 else ''}, simulated"


def to_json(data: object) -> str:
    """Write plain data, dataclasses, paths and sets as strict JSON.

    JSON has no infinity and no not-a-number: those become the strings "inf", "-inf" and "nan".
    """
    return json.dumps(_plain(data), indent=2, allow_nan=False)


def _plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
