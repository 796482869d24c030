"""The result of an estimate: quantities with 80 % intervals, the limit of each, and all assumptions.

An interval is a class's band around the value: the tenth and ninetieth percentile of published over predicted, where
each prediction was made without the family of its model.

    >>> Quantity.of(100.0, Band(low=0.9, high=1.2, num_rows=5, basis="x"), "dma").high
    120.0
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..base.core import Choice
from .device_time import Band

if TYPE_CHECKING:
    from .continuous import ServedPool
    from .lengths import Padding

QUANTITIES = {
    "ttft_ms": "until every request of a batch has its first token",
    "tpot_ms": "between output tokens",
    "latency_ms": "of one request: prompt and answer, or one run",
    "throughput_per_s": "requests of all replicas on the instance",
    "tokens_per_s": "output tokens of all replicas on the instance",
    "usd_per_1m": "for a million output tokens, or requests where there are none",
    "hbm_bytes_per_core": "weights, cache, scratch and code",
    "hbm_bytes_per_step": "read by one core in a decode step, or in one run",
    "mfu": "share of the 16-bit peak, in prefill or in one run",
    "mbu": "share of the HBM bandwidth, in a decode step or in one run",
}
"""Quantities of an estimate, by name, with the meaning of each."""


SERVED = {
    "ttft_mean_ms": "mean time to first token",
    "ttft_p90_ms": "90th percentile of the time to first token",
    "tpot_mean_ms": "mean time per output token",
    "tpot_p90_ms": "90th percentile of the time per output token",
    "latency_mean_ms": "mean latency",
    "latency_p90_ms": "90th percentile of the latency",
}
"""Times of requests under a load, by name, with the meaning of each; only for continuous batching."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """One simulated number."""

    value: float
    low: float
    """Lower end of the 80 % interval."""
    high: float
    limited_by: str
    """Resource that would have to be faster, larger, or cheaper to improve it."""

    @classmethod
    def of(cls, value: float, band: Band, limited_by: str) -> Quantity:
        """A value with a class's band around it."""
        return cls(value=value, low=value * band.low, high=value * band.high, limited_by=limited_by)

    @classmethod
    def share(cls, value: float, band: Band, limited_by: str) -> Quantity:
        """A part of a peak, which no end of the interval exceeds."""
        share = cls.of(value, band, limited_by)
        return dataclasses.replace(share, high=min(share.high, 1.0))

    @classmethod
    def exact(cls, value: float, limited_by: str) -> Quantity:
        """A value that is counted and not estimated."""
        return cls(value=value, low=value, high=value, limited_by=limited_by)

    def scaled(self, factor: float) -> Quantity:
        """The value and its interval times a factor."""
        return dataclasses.replace(self, value=factor * self.value, low=factor * self.low, high=factor * self.high)

    @classmethod
    def inverse(cls, value: float, band: Band, limited_by: str) -> Quantity:
        """A value that falls as the time grows whose band is given."""
        return cls(value=value, low=value / band.high, high=value / band.low, limited_by=limited_by)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Load:
    """Requests that arrive at random, on one instance. Every number is simulated.

    An end of an interval is infinite where the instance cannot keep up at that end of the estimate: the queue then
    grows as long as the load lasts.
    """

    requests_per_s: float
    utilization: Quantity
    """Arrivals divided by the capacity of the instance; at one and above the queue grows without end."""
    wait_mean_ms: Quantity
    """Until service begins, on average."""
    wait_p95_ms: Quantity
    """The same, exceeded by one request in twenty."""
    served: Mapping[str, Quantity] = dataclasses.field(default_factory=dict, hash=False)
    """Times of requests by the names in `SERVED`, with continuous batching."""
    num_copies: int
    """Fewest replicas that keep up at the slow end of the estimate, on as many instances as they take."""
    num_instances: int
    """Those instances."""
    usd_per_h: float | None
    """Their price; None if it is not published."""
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data; infinity is None."""
        data = dataclasses.asdict(self)
        data |= dict.fromkeys(SERVED) | data.pop("served")
        for name in ("utilization", "wait_mean_ms", "wait_p95_ms", *self.served):
            data[name] = {key: None if value == math.inf else value for key, value in data[name].items()}
        return data


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Estimate of a model on an instance. Every number is simulated."""

    model: str
    kind: str
    """Class of model, which decides the intervals: decoder, mixture, encoder, vit, cnn, diffusion, graph."""
    instance: Choice[str]
    num_instances: int = 1
    """Instances that share a replica by its pipeline stages."""
    usd_per_h: float | None = None
    """Price of all of them; None if it is not published."""
    target: str
    num_cores: Choice[int]
    """Logical cores of one replica."""
    num_copies: Choice[int]
    quantities: Mapping[str, Quantity] = dataclasses.field(hash=False)
    """By the names in `QUANTITIES`; quantities that do not apply are left out."""
    memory: Mapping[str, int] = dataclasses.field(hash=False)
    """HBM of one core by category, in bytes."""
    available_bytes: int
    batch_size: int | None = None
    """Sequences of a step, or examples of a run."""
    bounds: Mapping[str, float] = dataclasses.field(hash=False)
    """Least times by documented peaks alone: bounds, never estimates."""
    parts_ms: Mapping[str, Mapping[str, float]] = dataclasses.field(hash=False)
    """Time of each engine, by graph; tensor and dma overlap."""
    assumptions: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Reasons why the estimate is less certain than others, or incomplete."""
    unknown: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Operators whose work is not known, with their share of the calls."""
    load: Load | None = None
    """Waiting under requests that arrive at random, where a rate was given."""
    throughput_by_axis: Mapping[str, Quantity] = dataclasses.field(default_factory=dict, hash=False)
    """Throughput along each batch axis, such as `texts_per_s`, where a model has several."""
    padding: Padding | None = None
    """Compiled sizes that the prompt and the answer of a request run in; None for single-pass models."""
    speculation: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)
    """Candidates, tokens of a check, and the cost of the draft, if tokens are checked together."""
    counts: Choice[str] | None = None
    """Whether the counts of a configuration are cached or were counted now, and where; None for compiled models and
    models in memory."""
    served_pool: ServedPool | None = None
    """How a program with continuous batching serves requests, for a load; no part of the plain data."""
    divisible: bool = False
    """Whether a replica can be divided over more cores; compiled and single-core models cannot."""
    simulated: bool = True

    def __getattr__(self, name: str) -> Quantity | None:
        if name in QUANTITIES:
            return self.quantities.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def fit(self) -> Literal["fits", "may not fit"]:
        """Whether a core holds the upper end of what it needs; what exceeds a core is an error instead."""
        return "fits" if self.quantities["hbm_bytes_per_core"].high <= self.available_bytes else "may not fit"

    def noted(self, *notes: str) -> Estimate:
        """The same with more notes."""
        return dataclasses.replace(self, notes=(*self.notes, *notes))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: each quantity under its own name, None where the model has none."""
        values = {name: dataclasses.asdict(q) if (q := self.quantities.get(name)) else None for name in QUANTITIES}
        return {
            "simulated": True,
            "model": self.model,
            "kind": self.kind,
            "instance": self.instance.to_dict(),
            "num_instances": self.num_instances,
            "usd_per_h": self.usd_per_h,
            "target": self.target,
            "num_cores": self.num_cores.to_dict(),
            "num_copies": self.num_copies.to_dict(),
            **values,
            "batch_size": self.batch_size,
            "fit": self.fit,
            "hbm_bytes": {**self.memory, "total": sum(self.memory.values()), "available": self.available_bytes},
            "bounds_ms": dict(self.bounds),
            "parts_ms": {graph: dict(parts) for graph, parts in self.parts_ms.items()},
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "unknown_operators": dict(self.unknown),
            "throughput_by_axis": {name: dataclasses.asdict(one) for name, one in self.throughput_by_axis.items()},
            "padding": None if self.padding is None else self.padding.to_dict(),
            "speculation": None if self.speculation is None else dict(self.speculation),
            "counts": None if self.counts is None else self.counts.to_dict(),
            "load": self.load.to_dict() if self.load is not None else None,
        }
