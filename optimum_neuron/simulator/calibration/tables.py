"""CSV tables of measurements: a row for each run, columns are options of an estimate and measured values.

    model,instance,tensor_parallel_size,batch_size,sequence_length,ttft_ms,tpot_ms
    meta-llama/Llama-3.1-8B,inf2.48xlarge,8,4,4096,1190,18.2

A time has its unit in its name: `ttft_ms`, `ttft_s`, or `ttft_us`. Empty cells are left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError, nearest, raise_together
from ..request import KEYWORDS
from .measured import METRICS, NOT_MEASURED, MeasuredRun, require_batch, with_options

UNITS = {"_ms": 1.0, "_s": 1e3, "_us": 1e-3}
"""Milliseconds of a unit, by the end of a column's name."""
MODEL, NOTE = "model", "note"


def metric_columns() -> dict[str, tuple[str, float]]:
    """Return the metric and the factor of each column of measured values."""
    times = [name.removesuffix("_ms") for name in METRICS if name.endswith("_ms")]
    columns = {base + unit: (f"{base}_ms", factor) for base in times for unit, factor in UNITS.items()}
    return columns | {name: (name, 1.0) for name in METRICS if name.endswith("per_s")}


def read_table(text: str, path: Path, *, model: Any, options: Mapping[str, Any]) -> list[MeasuredRun]:
    """Return the runs of a table; every row that cannot be read is in one error."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    _check_columns(path, reader.fieldnames or ())
    runs: list[MeasuredRun] = []
    problems: list[ConfigError] = []
    for number, row in enumerate(reader, start=1):
        try:
            runs.append(_run(row, f"{path}, row {number}", model=model, options=options))
        except ConfigError as error:
            problems.append(error)
    raise_together(problems)
    return runs


def _check_columns(path: Path, columns: Iterable[str]) -> None:
    """Check that each column is an option or a measured value."""
    from ...kinds import compile_options
    from ...options.option import SOURCE_OPTIONS

    values = metric_columns()
    options = [name for name in (*KEYWORDS, *compile_options(), *SOURCE_OPTIONS) if name not in NOT_MEASURED]
    known = [MODEL, NOTE, *values, *options]
    unknown = [name for name in columns if name not in known]
    if unknown:
        named = "; ".join(f"'{name}'{nearest(name, known)}" for name in unknown)
        message = f"{path} has unknown columns: {named}."
        hint = f"Columns are {MODEL}, {NOTE}, options of `optimum-cli neuron estimate`, and measured values with their "
        hint += f"unit: {', '.join(METRICS)}."
        raise ConfigError(message, hint=hint, columns=unknown, option="columns")
    if not set(columns) & set(values):
        message = f"{path} has no column of measured values."
        raise ConfigError(message, hint=f"Add at least one of {', '.join(METRICS)}.", option="columns", columns=[])


def _run(row: Mapping[str, Any], origin: str, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    if None in row or None in row.values():
        message = f"{origin} has more or fewer cells than the header."
        raise ConfigError(message, hint="Write one cell for each column.", origin=origin)
    cells = {name: text.strip() for name, text in row.items() if text.strip()}
    note, own_model = cells.pop(NOTE, ""), cells.pop(MODEL, None)
    if own_model is None and model is None:
        message = f"{origin} has no model."
        raise ConfigError(message, hint="Fill in the column model, or pass --model.", option=MODEL, origin=origin)
    columns = metric_columns()
    values: dict[str, float] = {}
    for name, (metric, factor) in columns.items():
        if (text := cells.pop(name, None)) is None:
            continue
        if metric in values:
            message = f"{origin} has {metric} in two units."
            raise ConfigError(message, hint="Fill in one of the columns.", option=metric, origin=origin)
        values[metric] = factor * _number(name, text, origin)
    own = {name: _plain(text) for name, text in cells.items()}
    every, named = with_options(own, options, origin=origin), model if own_model is None else own_model
    require_batch(every, model=named, origin=origin)
    notes = (note,) if note else ()
    return MeasuredRun(origin=origin, model=named, options=every, values=values, notes=notes)


def _number(name: str, text: str, origin: str) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"{origin}: {name}={text!r} is not a number."
        hint = "Write a number without its unit; the name of the column has the unit."
        raise ConfigError(message, hint=hint, option=name, value=text, origin=origin) from None


def _plain(text: str) -> Any:
    """Return the number or truth value that a cell stands for, or its text; a release such as 2.20 stays a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else text
