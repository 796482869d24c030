"""Why a measured value contradicts the others: the first reason that fits, from the documented to the likely.

reason = why_contradicted(value, values)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...base.wording import number
from .measured import DEVICE
from .predicting import configuration
from .values import CalibratedValue

FAR = 2.0
"""Deviations from the prediction without its own run beyond which a value contradicts the others."""
DIFFERENT = 1.25
"""Ratio of two values of one configuration that are not the same measurement."""
MOST_PULL = 10.0
"""Factor on a constant beyond which it explains no value."""
NEAR = 1.15
"""Ratio of a value and a guess that agree."""


def why_contradicted(value: CalibratedValue, others: Sequence[CalibratedValue], pulls: Mapping[str, float]) -> str:
    """Say why a value is far from what the others make of it.

    Args:
        value: that is far.
        others: all values of the calibration.
        pulls: factor on each constant that could explain it alone.
    """
    own, first = value.prediction, value.prediction.first
    for other in others:
        if other.metric != value.metric or other.prediction.run is own.run:
            continue
        if configuration(other.prediction.run) == configuration(own.run):
            ratio = max(other.measured / value.measured, value.measured / other.measured)
            if ratio > DIFFERENT:
                where = other.prediction.run.origin
                return f"{where} measured {number(other.measured)} with the same configuration"
    bound = _bound_ms(value)
    if bound is not None and value.measured < bound:
        return f"documented peaks alone allow no less than {number(bound)} ms"
    for name, factor in (("batch_size", own.run.options.get("batch_size")), ("num_copies", first.num_copies.value)):
        if isinstance(factor, int) and factor > 1 and value.is_rate:
            for times, what in ((factor, "of all of them"), (1 / factor, "of one")):
                if 1 / NEAR < value.measured / (times * value.left_out) < NEAR:
                    return f"it is {times:g} times the prediction, and {name} is {factor}: it may be {what}"
    near = {name: factor for name, factor in pulls.items() if 1 / MOST_PULL < factor < MOST_PULL}
    if near:
        name = min(near, key=lambda one: abs(math.log(near[one])))
        return f"it alone would need {name} to be {number(near[name])} times as large, which the others do not allow"
    return f"no constant within a factor of {MOST_PULL:g} explains it"


def _bound_ms(value: CalibratedValue) -> float | None:
    """Return the least time of a value by documented peaks."""
    bounds = value.prediction.first.bounds
    names = {"tpot_ms": "decode", "decode_ms": "decode", "ttft_ms": "prefill", "prefill_ms": "prefill"}
    names |= {"latency_ms": "run", "device_ms": "run"} if value.metric in ("latency_ms", *DEVICE) else {}
    name = names.get(value.metric)
    return None if name is None else bounds.get(name)
