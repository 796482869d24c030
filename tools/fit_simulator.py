"""Fit the simulator's constants and write `optimum_neuron/simulator/data/constants.json`.

    python tools/fit_simulator.py            # fit, print, write
    python tools/fit_simulator.py --check    # exit with 1 if the file is not what the fit gives

Needs numpy, which transformers brings. Published values are in `tools/fidelity/published.csv`, each with its source.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "fidelity"))

from cases import read_rows
from fit import build, spread
from report import bands, grouped, is_fitted, score, summary
from training import training_mfu

from optimum_neuron.simulator import FORMAT

FILE = Path(__file__).parents[1] / "optimum_neuron/simulator/data/constants.json"
VERSION = 6
FITTED_ON = "tools/fidelity/published.csv: values that AWS and Hugging Face published up to March 2026"
DIGITS = 4


def main() -> int:
    """Fit and write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    rows = read_rows()
    found = score(rows)
    values, scored = found.values, found.scored
    for name, value in values.items():
        print(f"{name:28} {value:.4g}")
    for name, group in grouped(scored).items():
        print(f"{name:28} {len(group):4} " + " ".join(f"{key} {value:.3f}" for key, value in summary(group).items()))
    constants = build(values)
    data = dataclasses.asdict(constants) | {
        "format": FORMAT,
        "version": VERSION,
        "fitted_on": FITTED_ON,
        "training_mfu": training_mfu(rows),
        "bands": {name: dataclasses.asdict(band) for name, band in bands(scored).items()},
        "spread": spread([s.case for s in scored if is_fitted(s.case)], values),
    }
    text = json.dumps(_rounded(data), indent=1) + "\n"
    if check:
        return 0 if FILE.read_text() == text else 1
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text)
    return 0


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
