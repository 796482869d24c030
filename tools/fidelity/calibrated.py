"""Calibration against published values: half of the rows of a class on an instance update constants that never saw any
of them, and predict the other half.

    python tools/fidelity/calibrated.py decoder inf2.48xlarge
    python tools/fidelity/calibrated.py hybrid trn2.48xlarge

Constants are fitted without the instance first. Halves are every other configuration, so that no configuration is in
both; each half is predicted once. Only rows of models that generate are used, whose work is counted quickly.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from cases import HERE, Row, cases, read_rows, release
from fit import build, fit, spread
from report import is_fitted

from optimum_neuron.simulator import Constants, calibrate, compare_run, constants

METRICS = ("ttft_ms", "tpot_ms")
COLUMNS = ("model", "instance", "stack", "sdk", "tensor_parallel_size", "batch_size", "sequence_length")
COLUMNS = (*COLUMNS, "input_length", "output_length", "concurrency", "dtype")
DTYPES = {1: "int8", 2: "bf16"}


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write published rows as the CSV table of a user, with the configurations of their models beside it."""
    models = json.loads((HERE / "models.json").read_text())
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, (*COLUMNS, *METRICS), restval="")
        writer.writeheader()
        for row in rows:
            folder = path.parent / row.model
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text(json.dumps(models[row.model]))
            named = {
                "model": folder,
                "sdk": row.sdk or ".".join(map(str, release(row.date))),
                "tensor_parallel_size": row.cores,
                "batch_size": row.batch,
                "dtype": DTYPES[row.weight_bytes or 2],
                row.metric: row.value,
            }
            same = {name: getattr(row, name) for name in COLUMNS if name not in named}
            writer.writerow({**same, **named})


def halves(rows: Iterable[Row], category: str, instance: str) -> tuple[list[Row], list[Row]]:
    """Return the rows of a class on an instance, every other configuration in each half."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if row.category == category and row.instance == instance and row.metric in METRICS:
            key = (row.model, row.stack, row.cores, row.batch, row.sequence_length, row.input_length, row.output_length)
            found.setdefault(key, []).append(row)
    ordered = [found[key] for key in sorted(found, key=str)]
    return [row for own in ordered[::2] for row in own], [row for own in ordered[1::2] for row in own]


def without(rows: Iterable[Row], instance: str) -> Constants:
    """Return constants that were fitted without an instance, with their spread; bands are the shipped ones."""
    kept = [row for row in rows if row.category in ("decoder", "profile") and row.instance != instance]
    used = [case for case in cases(kept) if is_fitted(case)]
    values, _ = fit(used)
    shipped = constants()
    return dataclasses.replace(build(values), bands=shipped.bands, version=shipped.version, spread=spread(used, values))


def main(category: str, instance: str) -> None:
    """Print the errors of each half before and after."""
    rows = read_rows()
    base = without(rows, instance)
    errors: dict[str, dict[str, list[float]]] = {metric: {"before": [], "after": []} for metric in METRICS}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"half{half}.csv" for half in (0, 1)]
        both = halves(rows, category, instance)
        for own, path in zip(both, paths, strict=True):
            write_rows(own, path)
        for path, other in (paths, paths[::-1]):
            mine = calibrate([path], constants=base).constants
            for name, values in (("before", base), ("after", mine)):
                for run in compare_run(other, constants=values):
                    for metric, (measured, predicted) in run.phases.items():
                        errors[metric][name].append(predicted.value / measured - 1)
    for metric, found in errors.items():
        for name, own in found.items() if found["before"] else ():
            sizes = np.abs(own)
            median, within = 100 * np.median(sizes), 100 * np.mean(sizes <= 0.25)
            what = f"{category} on {instance}, {metric} {name:6}: {len(own)} values"
            print(f"{what}, median {median:.1f} %, within 25 %: {within:.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
