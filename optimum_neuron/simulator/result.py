"""Assemble an `Estimate`: the interval of each quantity, the price, and the facts of the machine.

make_estimate(machine, name="bert", kind="encoder", values={"latency_ms": (3.1, "dma")}, per_s=320.0, ...)
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core import Choice
from ..hardware import Target
from .bands import band_of
from .machine import Machine
from .quantity import Estimate, Quantity


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
        machine: instance, price, and fitted constants.
        name: the model.
        kind: class of the model, which decides the intervals.
        values: each quantity with the engine or memory that limits it.
        per_s: results of all replicas per second, for the price of a million.
        rate: quantity that `per_s` is; the price has its interval.
        same_band: other quantities that have the interval of `rate`.
        num_cores: logical cores of one replica.
        num_copies: replicas on the instance.
        memory: bytes of HBM by category.
        bounds_s: least seconds by documented peaks alone.
        parts_s: seconds of each engine, by graph.
        assumptions: conditions of the estimate.
        notes: weaknesses of the estimate.
        unknown: operators whose work is not known, with their share of the calls.
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
    return max(memory, key=lambda category: memory[category])


def generation_notes(target: Target, published: str) -> tuple[str, ...]:
    """Return the notes for generations with few published values.

    Args:
        target: compile target.
        published: published values of Trainium2 for this class of model, in words.
    """
    if target.core.generation == 3:
        return (f"Trainium2: {published}; the intervals are wide",)
    if target.core.generation >= 4:
        return ("Trainium3: no published value; an extrapolation by documented rates that nothing validates",)
    return ()
