"""`compare_run`: measured runs beside their predictions, phase by phase.

for comparison in compare_run("result.json", model="llama", instance="inf2.48xlarge", batch_size=8):
    print(comparison.rows)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..fitted import Constants
from ..machine import as_constants
from ..result import EXACT, Quantity
from .measured import METRICS
from .predicting import Prediction, require_plausible
from .reading import Graph, read_measurements


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunComparison:
    """One measured run beside its prediction. Predictions are simulated."""

    origin: str
    model: str
    instance: str
    phases: Mapping[str, tuple[float, Quantity]] = dataclasses.field(hash=False)
    """Measured and predicted, by the names in `METRICS`."""
    engines: Mapping[str, tuple[float, float]] = dataclasses.field(hash=False)
    """Milliseconds of each engine, measured and predicted, where a profile says them."""
    hbm_bytes: tuple[float, Quantity] | None
    """Bytes read from HBM, measured and predicted, where a profile says them."""
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    simulated: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with relative errors and whether a value is in the 80 % interval."""

        def row(measured: float, predicted: Quantity) -> dict[str, Any]:
            inside = predicted.low <= measured <= predicted.high
            error = predicted.value / measured - 1
            return {"measured": measured, "predicted": dataclasses.asdict(predicted), "error": error, "inside": inside}

        return {
            "simulated": True,
            "origin": self.origin,
            "model": self.model,
            "instance": self.instance,
            "phases": {name: row(*pair) for name, pair in self.phases.items()},
            "engines": {
                name: {
                    "measured": measured,
                    "predicted": predicted,
                    "error": predicted / measured - 1 if measured else None,
                }
                for name, (measured, predicted) in self.engines.items()
            },
            "hbm_bytes": None if self.hbm_bytes is None else row(*self.hbm_bytes),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
        }


def compare_run(
    file: str | Path,
    *,
    model: Any = None,
    constants: str | Path | Constants | None = None,
    graph: Graph | None = None,
    **options: Any,
) -> list[RunComparison]:
    """Compare the measured runs of a file with their predictions.

    Args:
        file: as for `read_measurements`.
        model: model of all runs, where the file has none.
        constants: a file of `calibrate`; None for the constants of this version.
        graph: graph that a file of neuron-profile or neuron-monitor is of.
        **options: options of `estimate` for all runs, such as `instance` and `batch_size`.

    Raises:
        ConfigError: the file cannot be read, or a value of it is not possible.

    Example:
        ```python
        from pathlib import Path
        from transformers import LlamaConfig
        from optimum_neuron.simulator import compare_run

        config = LlamaConfig(num_hidden_layers=2, hidden_size=256, num_attention_heads=4)
        Path("measured.csv").write_text("instance,batch_size,sequence_length,tpot_ms\\ninf2.xlarge,1,512,2.4")
        (comparison,) = compare_run("measured.csv", model=config)
        measured, predicted = comparison.phases["tpot_ms"]
        assert measured == 2.4 and predicted.low < predicted.value < predicted.high
        ```
    """
    values = as_constants(constants)
    runs = read_measurements(file, model=model, options=options, graph=graph)
    return [_compared(Prediction.of(run, values), values) for run in runs]


def _compared(prediction: Prediction, values: Constants) -> RunComparison:
    run, first, predicted = prediction.run, prediction.first, prediction.at(values)
    require_plausible(prediction, predicted)
    graph = next((name for name in first.device_ms for metric in run.values if _is_of(name, metric)), None)
    parts = {} if graph is None else first.parts_ms[graph]
    read = first.quantities.get("hbm_bytes_per_step")
    known = run.hbm_bytes is not None and read is not None and "prefill_ms" not in run.values
    return RunComparison(
        origin=run.origin,
        model=str(first.model),
        instance=first.instance.value,
        phases={name: (run.values[name], predicted[name]) for name in METRICS if name in run.values},
        engines={name: (ms, parts[name]) for name, ms in run.engines.items() if name in parts},
        hbm_bytes=(run.hbm_bytes, Quantity.of(read.value, EXACT, "hbm")) if known and run.hbm_bytes and read else None,
        assumptions=first.assumptions,
        notes=(*run.notes, *first.notes),
    )


def _is_of(graph: str, metric: str) -> bool:
    role = metric.removesuffix("_ms")
    return role == "device" or (role in ("prefill", "decode") and graph.startswith(role))
