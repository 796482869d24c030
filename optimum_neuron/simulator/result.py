"""Assemble an `Estimate`: the interval of each quantity, the price, and the facts of the machine.

make_estimate(machine, name="bert", kind="encoder", values={"latency_ms": (3.1, "dma")}, per_s=320.0, ...)
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base.core import Choice
from ..hardware import Target
from .device_time import Band, Constants
from .machine import Machine
from .quantity import Estimate, Quantity

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
    generation = target.core.generation
    if generation == 1:
        return constants.bands.get(f"{_OF_INF1[kind]}.{metric}", WIDE) if kind in _OF_INF1 else WIDE
    if generation >= 4 or (generation == 3 and kind not in ("decoder", *FEW_ROWS)):
        return WIDE
    if generation == 3 and kind == "decoder":
        return constants.bands.get(f"trn2.{metric}", constants.bands["trn2.ttft_ms"])
    if kind == "decoder" and metric in _SAME_AS:
        return constants.bands[_SAME_AS[metric]]
    if metric in ("mfu", "mbu"):
        metric = "throughput_per_s"
    return constants.bands.get(f"{kind}.{metric}", WIDE)


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
