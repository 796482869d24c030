"""The result of an estimate: quantities with 80 % intervals, the limit of each, price, machine, and all assumptions.

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
from ..hardware import Target
from .fitted import Band, Constants
from .machine import Machine

if TYPE_CHECKING:
    from .continuous import ServedPool
    from .rows import ServedRows
    from .stacks import Padding


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
"""Times of requests under a load, by name, with the meaning of each; where requests are taken one by one."""


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
class ClientLoad:
    """What clients see that each wait for an answer before they ask again. Every number is simulated."""

    num_clients: int
    requests_per_s: Quantity
    """Answered on the instance."""
    tokens_per_s: Quantity
    usd_per_1m: Quantity | None
    """Price of a million output tokens; None if that of the instance is not published."""
    served: Mapping[str, Quantity] = dataclasses.field(hash=False)
    """Times of requests by the names in `SERVED`."""
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        data = dataclasses.asdict(self)
        served = data.pop("served")
        return data | dict.fromkeys(SERVED) | served


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
    device_ms: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Time of one run on the device, by graph."""
    notes: tuple[str, ...] = ()
    """Reasons why the estimate is less certain than others, or incomplete."""
    unknown: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    """Operators whose work is not known, with their share of the calls."""
    load: Load | None = None
    """Waiting under requests that arrive at random, where a rate was given."""
    clients: ClientLoad | None = None
    """What clients see that each wait for their answer, where their number was given."""
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
    served_rows: ServedRows | None = None
    """How a stack serves a configuration that it reads prompt by prompt; no part of the plain data."""
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
            "device_ms": dict(self.device_ms),
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "unknown_operators": dict(self.unknown),
            "throughput_by_axis": {name: dataclasses.asdict(one) for name, one in self.throughput_by_axis.items()},
            "padding": None if self.padding is None else self.padding.to_dict(),
            "speculation": None if self.speculation is None else dict(self.speculation),
            "counts": None if self.counts is None else self.counts.to_dict(),
            "load": self.load.to_dict() if self.load is not None else None,
            "clients": self.clients.to_dict() if self.clients is not None else None,
        }

    def _repr_html_(self) -> str:
        from ..pages import embedded, estimate_page

        return embedded(estimate_page(self.to_dict()))


WIDE = Band(low=0.4, high=2.5, num_rows=0, basis="no published value of this class: a judgment")
"""For classes without published values."""
MEMORY = Band(low=0.95, high=1.3, num_rows=2, basis="one published breakdown; collectives and DMA rings come on top")
"""Footprint of a core."""
EXACT = Band(low=0.995, high=1.005, num_rows=17, basis="counted, and compared with 17 device profiles")
"""Bytes that a step reads."""

FEW_ROWS = ("mixture", "hybrid")
"""Decoders whose intervals hold for Trainium2 too, where most of their published values are from."""

NEURONCORE_PIPELINE = "neuroncore-pipeline"
"""Class of single-pass models that several cores of Inf1 share."""
_OF_INF1 = {"encoder": "inf1", "cnn": "inf1-cnn", NEURONCORE_PIPELINE: "inf1-pipeline"}
"""Classes of Inf1 with published values."""
_SAME_AS = {"mfu": "profile.prefill_mfu", "mbu": "profile.decode_mbu"}
"""Metrics of a decoder's device that are published as profiles."""


def band_of(kind: str, metric: str, target: Target, constants: Constants) -> Band:
    """The 80 % interval of one quantity, as factors."""
    if metric == "hbm_bytes_per_core":
        return MEMORY
    if metric == "hbm_bytes_per_step":
        return EXACT if kind in ("decoder", "encoder") else WIDE if kind in FEW_ROWS else MEMORY
    name = band_name(kind, metric, target)
    if name not in constants.bands and name.startswith("trn2."):
        return constants.bands["trn2.ttft_ms"]
    return constants.bands.get(name, WIDE)


def scale_of(machine: Machine, kind: str, metric: str) -> float:
    """Return the factor on a class of times that a calibration found, 1 without one."""
    scale = machine.constants.scale
    return scale.get(band_name(kind, metric, machine.target), 1.0) if scale else 1.0


def band_name(kind: str, metric: str, target: Target) -> str:
    """Return the name that the interval of a quantity has among the constants, if it is there."""
    generation = target.core.generation
    if generation == 1:
        return f"{_OF_INF1.get(kind, f'inf1-{kind}')}.{metric}"
    if generation >= 4 or (generation == 3 and kind not in ("decoder", *FEW_ROWS)):
        return f"{target.name}-{kind}.{metric}"
    if generation == 3 and kind == "decoder":
        return f"trn2.{metric}"
    if kind == "decoder" and metric in _SAME_AS:
        return _SAME_AS[metric]
    return f"{kind}.{'throughput_per_s' if metric in ('mfu', 'mbu') else metric}"


def make_estimate(
    machine: Machine,
    *,
    name: str,
    kind: str,
    values: Mapping[str, tuple[float, str]],
    per_s: float,
    rate: str = "throughput_per_s",
    same_band: tuple[str, ...] = (),
    num_cores: Choice[int],
    num_copies: Choice[int],
    memory: dict[str, int],
    bounds_s: Mapping[str, float],
    parts_s: Mapping[str, Mapping[str, float]],
    device_s: Mapping[str, float],
    assumptions: tuple[str, ...],
    notes: tuple[str, ...] = (),
    unknown: Mapping[str, float] | None = None,
) -> Estimate:
    """Return an estimate on a machine.

    Args:
        values: each quantity with the engine or memory that limits it.
        per_s: results of all replicas per second, for the price of a million.
        rate: quantity that `per_s` is; the price has its interval.
        same_band: other quantities that have the interval of `rate`.

    The others are the fields of `Estimate`, times in seconds.
    """

    def quantity(metric: str, value: float, limited_by: str) -> Quantity:
        source = rate if metric in (*same_band, "usd_per_1m") else metric
        make = Quantity.share if metric in ("mfu", "mbu") else Quantity.of
        if source != metric and not metric.endswith("per_s"):
            make = Quantity.inverse  # a time or a price falls as the rate rises
        return make(value, band_of(kind, source, machine.target, machine.constants), limited_by)

    limits = {metric: limited_by for metric, (_, limited_by) in values.items()}
    if (usd := machine.usd_per_1m(per_s)) is not None:
        values = {**values, "usd_per_1m": (usd, limits[rate])}
    else:
        notes = (*notes, machine.price_source)
    return Estimate(
        model=name,
        kind=kind,
        instance=Choice(value=machine.instance.value.name, reason=machine.instance.reason),
        num_instances=machine.instance.value.num_instances,
        usd_per_h=machine.price_usd_per_h,
        target=machine.target.name,
        num_cores=num_cores,
        num_copies=num_copies,
        quantities={metric: quantity(metric, *value) for metric, value in values.items()},
        memory=memory,
        available_bytes=machine.hbm_bytes_per_core,
        bounds={run: 1e3 * seconds for run, seconds in bounds_s.items()},
        parts_ms={graph: {part: 1e3 * seconds for part, seconds in parts.items()} for graph, parts in parts_s.items()},
        device_ms={graph: 1e3 * seconds for graph, seconds in device_s.items()},
        assumptions=assumptions,
        notes=notes,
        unknown=unknown or {},
    )


def largest(memory: Mapping[str, int]) -> str:
    """Return the category that takes the most memory."""
    return max(memory, key=memory.__getitem__)


def generation_notes(target: Target, published: str) -> tuple[str, ...]:
    """Return the notes for generations with few values; `published` says which of Trainium2 there are."""
    if target.core.generation == 3:
        return (f"Trainium2: {published}; the intervals are wide",)
    if target.core.generation >= 4:
        return ("Trainium3: no published value; an extrapolation by documented rates that nothing validates",)
    return ()
