"""What the simulator says of a measured run, with any constants: the values that were measured, with their intervals.

prediction = Prediction.of(run, constants())
prediction.at(constants())["ttft_ms"].value
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from ...base.wording import counted, number
from ...errors import ConfigError
from ...hardware import INSTANCES, TARGETS
from ..entry import timed_by
from ..fitted import Constants
from ..request import request_of
from ..result import Estimate, Quantity, band_name
from .measured import DEVICE, METRICS, MeasuredRun

SLIP = 300.0
"""Ratio of a measured value and its prediction, or its inverse, from which the unit must be wrong."""
_FACTORS = (1e3, 1e6)
FITTED = ("decoder", "encoder", "vit", "cnn")
"""Kinds of models that the published constants are fitted on."""
SHARED, SHARED_UNFITTED = 0.4, 0.9
"""Part of the variance of errors that is between models, stacks, and instances, in published values: 0.34 of times to
first token and 0.40 of times per output token. In classes that no constant is fitted on: 0.95 and 0.97 of times per
output token, none of times to first token."""
NORMAL = 1.2816
"""90 % quantile of the normal distribution: an 80 % interval ends so many deviations from its center."""
_OF_RATE = ("latency_ms", "throughput_per_s", "tokens_per_s")
"""Values of a model that generates that have the interval of its tokens per second."""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A run, counted once, as a function of the constants."""

    run: MeasuredRun
    estimate: Callable[[Constants], Estimate]
    generation: int
    """Generation of the cores of its instance."""
    first: Estimate
    """With the constants before."""

    @classmethod
    def of(cls, run: MeasuredRun, constants: Constants) -> Prediction:
        """Count the work of a run; a ConfigError says which run an error is of."""
        try:
            estimate = timed_by(run.model, request_of(run.options))
            first = estimate(constants)
        except ConfigError as error:
            details = {**error.details, "origin": run.origin}
            raise ConfigError(f"{run.origin}: {error.message}", hint=error.hint, **details) from error
        generation = TARGETS[INSTANCES[first.instance.value].family].core.generation
        return cls(run, estimate, generation, first)

    def at(self, constants: Constants) -> dict[str, Quantity]:
        """Return the predicted values that were measured."""
        result = self.estimate(constants)
        return {name: self._value(result, name, constants) for name in self.run.values}

    def band(self, metric: str) -> str:
        """Return the name of the interval of a value among the constants."""
        kind, generates = self.first.kind, "tpot_ms" in self.first.quantities
        if self.first.clients is not None and metric not in DEVICE:
            return f"served.{'tokens_per_s' if metric in _OF_RATE else metric}"
        if metric in ("prefill_ms", "decode_ms"):
            return f"profile.{metric}"
        source = "latency_ms" if metric == "device_ms" else metric
        target = TARGETS[INSTANCES[self.first.instance.value].family]
        return band_name(kind, "tokens_per_s" if generates and metric in _OF_RATE else source, target)

    def scale(self, metric: str) -> str | None:
        """Return the name of the factor on a class of times that a value is of; None if there is none."""
        if metric in DEVICE:
            return None
        if self.first.clients is not None:
            return None if metric == "latency_ms" else self.band(metric)
        if "tpot_ms" in self.first.quantities:
            metrics = ("ttft_ms", "tpot_ms") if self.first.kind in FITTED else ("tpot_ms",)
            return self.band(metric) if metric in metrics else None
        target = TARGETS[INSTANCES[self.first.instance.value].family]
        return band_name(self.first.kind, "latency_ms", target)

    def noise(self, metric: str, quantity: Quantity) -> float:
        """Return the deviation of the logarithm of a value from its class on the same server."""
        return deviation(quantity) * math.sqrt(1 - self.shared(metric))

    def shared(self, metric: str) -> float:
        """Return the part of the variance of a value that others of its class on the same server have in common."""
        return 0.0 if self.scale(metric) is None else self._share

    def common(self, quantity: Quantity) -> float:
        """Return the deviation of a logarithm that published values of its class on one server have in common."""
        return deviation(quantity) * math.sqrt(self._share)

    @property
    def _share(self) -> float:
        return SHARED if self.first.kind in FITTED and self.first.clients is None else SHARED_UNFITTED

    def is_inverse(self, metric: str) -> bool:
        """Whether the interval of a value is that of a rate, and the value falls where the rate rises."""
        return metric == "latency_ms" and self.band(metric).endswith("per_s")

    def _value(self, result: Estimate, metric: str, constants: Constants) -> Quantity:
        if metric in DEVICE:
            return self._device(result, metric, constants)
        found: Quantity | None = result.quantities.get(metric)
        if result.clients is not None:
            rates = {"tokens_per_s": result.clients.tokens_per_s, "throughput_per_s": result.clients.requests_per_s}
            found = rates.get(metric) or result.clients.served.get(metric.replace("_ms", "_mean_ms"))
        elif result.load is not None and metric.endswith("_ms"):
            found = result.load.served.get(metric.replace("_ms", "_mean_ms"))
        if found is None:
            message = f"{self.run.origin}: an estimate of {result.model} has no {METRICS[metric]}."
            raise ConfigError(message, hint=f"Remove {metric}.", option=metric, origin=self.run.origin)
        return found

    def _device(self, result: Estimate, metric: str, constants: Constants) -> Quantity:
        role, band = metric.removesuffix("_ms"), constants.bands.get(self.band(metric))
        graphs = [name for name in result.device_ms if role == "device" or name.startswith(role)]
        if len(graphs) != 1:
            message = f"{self.run.origin}: {counted(len(graphs), 'graph')} of {result.model} may be meant by {metric}."
            hint = f"Its graphs are {', '.join(result.device_ms)}: name one of prefill_ms and decode_ms."
            raise ConfigError(message, hint=hint, option=metric, origin=self.run.origin, graphs=list(result.device_ms))
        value = result.device_ms[graphs[0]] - result.parts_ms[graphs[0]]["launch"]
        limit = max(result.parts_ms[graphs[0]].items(), key=lambda part: part[1])[0]
        return Quantity.exact(value, limit) if band is None else Quantity.of(value, band, limit)


def require_plausible(prediction: Prediction, values: Mapping[str, Quantity]) -> None:
    """Check that no value is so far from its prediction that its unit must be wrong."""
    for name, measured in prediction.run.values.items():
        predicted = values[name].value
        ratio = measured / predicted
        if 1 / SLIP < ratio < SLIP:
            continue
        near = [f for f in (*_FACTORS, *(1 / f for f in _FACTORS)) if 1 / 20 < ratio / f < 20]
        factor = min(near, key=lambda f: abs(math.log(ratio / f)), default=None)
        origin, details = prediction.run.origin, {"option": name, "value": measured, "predicted": predicted}
        message = f"{origin}: {name}={measured:g} is {number(ratio)} times the predicted {number(predicted)}."
        hint = "Check what was measured." if factor is None else f"Check its unit: it may be off by {1 / factor:g}."
        raise ConfigError(message, hint=hint, factor=factor, origin=origin, **details)


def deviation(quantity: Quantity) -> float:
    """Return the standard deviation of the logarithm of measured over predicted, by an 80 % interval."""
    return max(math.log(quantity.high / quantity.low) / (2 * NORMAL), 0.01)


def configuration(run: MeasuredRun) -> tuple[Any, ...]:
    """Return what decides a prediction, to find runs of one configuration."""
    return (str(run.model), *sorted((name, str(value)) for name, value in run.options.items()))
