"""`calibrate`: measured values of a user update the constants of the simulator.

    calibration = calibrate(["results.csv"])
    calibration.write("mine.json")

The published values and their spread are the prior (`spread` in `data/constants.json`, and `update.as_published`), so a
few values move constants little. Only the constants of the core generations and hosts that were measured move.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.wording import counted
from ...errors import ConfigError
from ...files.atomic import write_bytes
from ..fitted import Band, Constants, flat, to_file, with_flat
from ..machine import as_constants
from ..result import WIDE, Quantity
from .contradictions import FAR, why_contradicted
from .predicting import NORMAL, Prediction, require_plausible
from .reading import Graph, read_measurements
from .update import Posterior, as_published, derivatives, update
from .values import CalibratedValue

if TYPE_CHECKING:
    import numpy as np

FEWEST_MOVES = 1e-3
"""Move of a constant's logarithm below which it is not shown."""
UNKNOWN_SPREAD = 0.1
"""Spread of a constant that a file has no spread of."""
BAND_ROWS = 8
"""Measured values that an interval of the prior counts as."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """Updated constants, and how near they are to the measured values."""

    constants: Constants
    """After the update."""
    before: Constants
    values: tuple[CalibratedValue, ...]
    files: tuple[str, ...]
    simulated: bool = True

    def moved(self) -> list[dict[str, Any]]:
        """Return the constants that moved, the largest move first, with their spread before and after."""
        old, new = flat(self.before), flat(self.constants)
        rows = [
            {
                "constant": name,
                "before": old[name],
                "after": new[name],
                "factor": new[name] / old[name],
                "spread_before": self.before.spread.get(name, UNKNOWN_SPREAD),
                "spread_after": self.constants.spread.get(name, UNKNOWN_SPREAD),
            }
            for name in old
            if abs(math.log(new[name] / old[name])) > FEWEST_MOVES
        ]
        return sorted(rows, key=lambda row: -abs(math.log(row["factor"])))

    def errors(self) -> list[dict[str, Any]]:
        """Return the median errors of each metric, and the share of values in the left-out intervals."""
        import statistics

        rows = []
        for metric in dict.fromkeys(value.metric for value in self.values):
            own = [one for one in self.values if one.metric == metric]
            medians = {
                name: statistics.median(abs(getattr(one, name) / one.measured - 1) for one in own)
                for name in ("before", "after", "left_out")
            }
            inside = sum(one.low <= one.measured <= one.high for one in own) / len(own)
            rows.append({"metric": metric, "values": len(own), **medians, "inside": inside})
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulated": True,
            "files": list(self.files),
            "base_version": self.before.version,
            "errors": self.errors(),
            "constants": self.moved(),
            "values": [value.to_dict() for value in self.values],
        }

    def write(self, path: str | Path) -> None:
        """Write the constants, whole or not at all, for the option `constants` of an estimate."""
        text = json.dumps(to_file(self.constants), indent=1) + "\n"
        write_bytes(Path(path), text.encode(), error=ConfigError)


def calibrate(
    files: Sequence[str | Path],
    *,
    model: Any = None,
    constants: str | Path | Constants | None = None,
    graph: Graph | None = None,
    **options: Any,
) -> Calibration:
    """Update the constants of the simulator with measured values.

    Args:
        files: as for `read_measurements`.
        model: model of all runs, where a file has none.
        constants: a file of an earlier calibration, to update it further; None for the constants of this version.
        graph: graph that a file of neuron-profile or neuron-monitor is of.
        **options: options of `estimate` for all runs, such as `instance` and `batch_size`.

    Raises:
        ConfigError: a file cannot be read, or a value of it is not possible.

    Example:
        ```python
        from pathlib import Path
        from transformers import LlamaConfig
        from optimum_neuron.simulator import calibrate, estimate

        config = LlamaConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4)
        config.save_pretrained("tiny-llama")
        rows = "tiny-llama,inf2.xlarge,1,512,14,2.4\\ntiny-llama,inf2.xlarge,4,512,50,3.1"
        Path("measured.csv").write_text(f"model,instance,batch_size,sequence_length,ttft_ms,tpot_ms\\n{rows}")
        calibrate(["measured.csv"]).write("mine.json")
        result = estimate("tiny-llama", instance="inf2.xlarge", sequence_length=512, constants="mine.json")
        assert "measured.csv" in str(result.assumptions)
        ```
    """
    base = as_constants(constants)
    runs = [run for file in files for run in read_measurements(file, model=model, options=options, graph=graph)]
    predictions = [Prediction.of(run, base) for run in runs]
    first = [one.at(base) for one in predictions]
    for one, values in zip(predictions, first, strict=True):
        require_plausible(one, values)
    return _calibrated(predictions, base, tuple(map(str, files)))


def _calibrated(predictions: list[Prediction], base: Constants, files: tuple[str, ...]) -> Calibration:
    import numpy as np

    pairs = [(one, metric) for one in predictions for metric in one.run.values]
    base = _with_scales(base, pairs)
    first = [quantity for one in predictions for quantity in one.at(base).values()]
    noise = np.array([one.noise(metric, quantity) for (one, metric), quantity in zip(pairs, first, strict=True)])
    start = flat(base)
    names = [name for name in start if _can_move(name, {one.generation for one in predictions})]

    def at(moved: np.ndarray) -> Constants:
        changed = {name: start[name] * math.exp(move) for name, move in zip(names, moved, strict=True)}
        return with_flat(base, changed)

    def predict(moved: np.ndarray) -> np.ndarray:
        values, found = at(moved), []
        for one in predictions:
            found += [math.log(quantity.value) for quantity in one.at(values).values()]
        return np.array(found)

    measured = np.array([math.log(one.run.values[metric]) for one, metric in pairs])
    models = collections.Counter((str(one.first.model), metric) for one, metric in pairs)
    weights = np.array([models[str(one.first.model), metric] ** -0.5 for one, metric in pairs])
    common = np.array([one.common(quantity) for (one, _), quantity in zip(pairs, first, strict=True)])
    unmoved = np.zeros(len(names))
    slopes = derivatives(predict, unmoved, predict(unmoved), np.ones(len(names), bool))
    spreads = as_published(np.array([base.spread.get(name, UNKNOWN_SPREAD) for name in names]), slopes, common)
    found = update(predict, measured, noise, weights, spreads)
    values = _values(pairs, first, noise, found, names)
    after = np.sqrt(np.diag(found.covariance))
    fitted_on = f"{base.fitted_on}; calibrated on {counted(len(pairs), 'value')} of {', '.join(files)}"
    updated = dataclasses.replace(
        at(found.moved),
        fitted_on=fitted_on,
        bands={**base.bands, **_bands(values, base)},
        spread={**base.spread, **dict(zip(names, after.tolist(), strict=True))},
        calibrated_on=(*base.calibrated_on, *files),
    )
    return Calibration(constants=updated, before=base, values=tuple(values), files=files)


def _with_scales(base: Constants, pairs: Sequence[tuple[Prediction, str]]) -> Constants:
    """Add a factor of 1 for each class that was measured; its spread is what a class has in common."""
    scale, spread = dict(base.scale), dict(base.spread)
    for one, metric in pairs:
        name = one.scale(metric)
        if name is not None and name not in scale:
            scale[name] = 1.0
            band = base.bands.get(name, WIDE)
            width = math.log(band.high / band.low) / (2 * NORMAL)
            spread[f"scale.{name}"] = math.sqrt(one.shared(metric)) * width
    return dataclasses.replace(base, scale=scale, spread=spread)


def _can_move(name: str, generations: set[int]) -> bool:
    """Whether measured values may say something about a constant."""
    if not name.startswith("cores."):
        return True
    _, generation, field = name.split(".")
    return int(generation) in generations and (field != "lone_core_share" or generation == "1")


def _values(
    pairs: Sequence[tuple[Prediction, str]],
    first: Sequence[Quantity],
    noise: Any,
    found: Posterior,
    names: Sequence[str],
) -> list[CalibratedValue]:
    """Return every value with its predictions; each run is left out as a whole."""
    import numpy as np

    values: list[CalibratedValue] = []
    scores = []
    for position, (one, metric) in enumerate(pairs):
        own = np.array([other.run is one.run for other, _ in pairs])
        predicted, variances = found.without(own)
        spread = math.sqrt(variances[position] + noise[position] ** 2)
        center, measured = float(predicted[position]), one.run.values[metric]
        scores.append(abs(math.log(measured) - center) / spread)
        ends = [math.exp(center + sign * NORMAL * spread) for sign in (-1, 1)]
        after, left_out = math.exp(found.predicted[position]), math.exp(center)
        values.append(
            CalibratedValue(
                prediction=one,
                metric=metric,
                measured=measured,
                before=first[position].value,
                after=after,
                left_out=left_out,
                low=ends[0],
                high=ends[1],
                counted=float(found.shares[position]),
            )
        )
    return [
        dataclasses.replace(
            value, contradicted=why_contradicted(value, values, _pulls(value, found.jacobian[position], names))
        )
        if scores[position] > FAR
        else value
        for position, value in enumerate(values)
    ]


def _pulls(value: CalibratedValue, row: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Return the factor on each constant that would explain a value alone."""
    gap = math.log(value.measured / value.left_out)
    moves = {name: gap / slope for name, slope in zip(names, row, strict=True) if abs(slope) > 1e-3}
    return {name: math.exp(min(max(move, -20.0), 20.0)) for name, move in moves.items()}


def _bands(values: Sequence[CalibratedValue], base: Constants) -> dict[str, Band]:
    """Return the intervals of measured classes, by the errors of left-out runs; a prior counts as a few values."""
    groups: dict[str, list[float]] = {}
    for value in values:
        ratio = math.log(value.measured / value.left_out)
        name = value.prediction.band(value.metric)
        groups.setdefault(name, []).append(-ratio if value.prediction.is_inverse(value.metric) else ratio)
    made = {}
    for name, errors in groups.items():
        if (band := base.bands.get(name)) is None:
            continue
        low, high = math.log(band.low), math.log(band.high)
        center = (BAND_ROWS * (low + high) / 2 + sum(errors)) / (BAND_ROWS + len(errors))
        squares = BAND_ROWS * ((high - low) / (2 * NORMAL)) ** 2 + sum((error - center) ** 2 for error in errors)
        half = NORMAL * math.sqrt(squares / (BAND_ROWS + len(errors)))
        basis = f"{band.basis}; and {counted(len(errors), 'measured value')}, each left out with its run"
        made[name] = Band(
            low=min(math.exp(center - half), 1.0),
            high=max(math.exp(center + half), 1.0),
            num_rows=band.num_rows + len(errors),
            basis=basis,
        )
    return made
