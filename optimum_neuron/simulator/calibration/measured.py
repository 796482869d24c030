"""One measured run: a model, the options that an estimate of it has, and the values that were measured.

>>> options = {"instance": "inf2.xlarge", "batch_size": 1}
>>> run = MeasuredRun(origin="a.csv, row 1", model="llama", options=options, values={"ttft_ms": 80.0})
>>> run.values["ttft_ms"]
80.0
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError

METRICS = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "latency_ms": "latency of a request or of a run",
    "throughput_per_s": "requests per second",
    "tokens_per_s": "output tokens per second",
    "prefill_ms": "prefill graph on the device",
    "decode_ms": "decode graph on the device",
    "device_ms": "graph on the device",
}
"""Values that a run can have, by name, with the meaning of each."""
DEVICE = ("prefill_ms", "decode_ms", "device_ms")
"""Times of one run of a graph, without the host."""
NOT_MEASURED = ("constants", "price", "draft_model", "draft_parameters", "acceptance_rate")
"""Options of an estimate that a measured run does not have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What was measured in one run on a real instance."""

    origin: str
    """File, and place in it."""
    model: Any
    """As for `estimate`."""
    options: Mapping[str, Any] = dataclasses.field(hash=False)
    """Options of an estimate of the run."""
    values: Mapping[str, float] = dataclasses.field(hash=False)
    """By the names in `METRICS`."""
    engines: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Milliseconds in which each engine was active, where a profile says it."""
    hbm_bytes: float | None = None
    """Bytes that the graph read from HBM, where a profile says it."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = {**self.values, **{f"engine {name}": ms for name, ms in self.engines.items()}}
        for name, value in values.items():
            if not math.isfinite(value) or value <= 0 and name in self.values or value < 0:
                message = f"{self.origin}: {name}={value:g} was not measured; it must be above 0."
                hint = "Correct the value, or leave it out."
                raise ConfigError(message, hint=hint, option=name, value=value, origin=self.origin)
        if given := [name for name in NOT_MEASURED if self.options.get(name) is not None]:
            message = f"{self.origin}: {', '.join(given)} cannot be an option of a measured run."
            raise ConfigError(message, hint="Remove it.", options=given, origin=self.origin)


def with_options(own: Mapping[str, Any], given: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """Return the options of a run and those given for all runs; a ConfigError where they differ."""
    for name, value in own.items():
        if name in given and given[name] != value:
            message = f"{origin} has {name}={value}, but {name}={given[name]} was given for all runs."
            raise ConfigError(message, hint=f"Remove {name} there or here.", option=name, value=value, origin=origin)
    return {**given, **own}


def require_batch(options: Mapping[str, Any], *, model: Any, origin: str) -> None:
    """Check that a run says its compiled batch size, which decides every time."""
    from pathlib import Path

    from ..entry import is_compiled

    if options.get("batch_size") is None and not (isinstance(model, (str, Path)) and is_compiled(Path(model))):
        message = f"{origin} has no batch_size."
        hint = "Add the compiled batch size (max_num_seqs of vLLM), or pass --batch_size for all runs."
        raise ConfigError(message, hint=hint, option="batch_size", value=None, origin=origin)
