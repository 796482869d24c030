"""The cheapest configuration that meets a service level objective, and why each other one lost.

    sweep = sweep_capacity("smollm2", trace, slo=parse_slo("ttft=500,tpot=50"))
    sweep.best.configuration

It tries instances, cores of a replica, batch sizes, and prefill chunks; options that are given are fixed. Each
configuration gets as few instances as meet the objective. One that cannot be cheaper than the best so far is not
replayed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...base.core import Choice, Rejected
from ...base.wording import number
from ...errors import ConfigError, DeviceMemoryError
from ...hardware import legal_core_counts
from ...options.option import source_options
from ..entry import source_of
from ..machine import Machine, choose_machine, require_tensor_parallel_size
from ..ranking import instance_names
from .plan import CapacityPlan, is_compiled_model, plan_capacity, require_arrivals, served_as
from .pools import Replicas
from .search import BATCH_SIZES, CHUNK_SIZES, Search, Tried, usd_of
from .slo import SLO
from .trace import Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """What was tried, and the best. Every number is simulated."""

    model: str
    trace: Trace
    slo: SLO
    best: CapacityPlan | None
    """Plan of the cheapest configuration, captured as a whole; None if none meets the objective."""
    choice: Choice[str | None]
    tried: tuple[Tried, ...]
    """Those that meet the objective first, by price."""
    skipped: Mapping[str, str] = dataclasses.field(hash=False)
    """Instances that were not tried, with the reason."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulated": True,
            "model": self.model,
            "trace": self.trace.to_dict(),
            "slo": self.slo.to_dict(),
            "best": None if self.best is None else self.best.to_dict(),
            "choice": self.choice.to_dict(),
            "tried": [one.to_dict() for one in self.tried],
            "skipped": dict(self.skipped),
        }

    def _repr_html_(self) -> str:
        from ...pages import embedded, sweep_page

        return embedded(sweep_page(self.to_dict()))


def sweep_capacity(
    model: Any,
    trace: Trace,
    *,
    slo: SLO,
    instance: str | None = None,
    price: float | None = None,
    constants: str | Path | None = None,
    max_queue_size: int | None = None,
    tensor_parallel_size: int | None = None,
    batch_size: int | None = None,
    prefill_chunk_size: int | None = None,
    on_tried: Callable[[Tried], None] = lambda one: None,
    **options: Any,
) -> Sweep:
    """Find the cheapest configuration that meets an objective.

    Args:
        model: folder or id of a decoder, or transformers configuration.
        trace: requests, see `read_trace` and `poisson_trace`.
        slo: the objective.
        instance: a family or an instance, to stay within it; None for all with a price.
        price: of one instance; needs `instance` to name one.
        constants: a file of `optimum-cli neuron calibrate`; None for those of this version.
        max_queue_size: as for `plan_capacity`.
        tensor_parallel_size: cores of a replica; None tries legal counts, fewest first.
        batch_size: requests of a step; None tries several.
        prefill_chunk_size: tokens of prompts between two steps; None tries several.
        on_tried: called with each configuration.
        **options: other options, as for `plan_capacity`.

    Raises:
        ConfigError: the model is compiled already, no instance has a price, or an option is not supported.
    """
    require_arrivals(trace)
    if is_compiled_model(model):
        message = f"{model} is compiled: its sizes cannot be swept."
        raise ConfigError(message, hint="Pass the checkpoint, or remove --sweep.", option="sweep", value=str(model))
    served, length = served_as(model, trace, options)
    machines, skipped = _machines(instance, price, constants)
    if tensor_parallel_size is not None:
        machines = _with_cores(machines, tensor_parallel_size)
    source = source_of(model, source_options(options))
    search = Search(
        trace=trace,
        slo=slo,
        max_queue_size=max_queue_size,
        replicas=Replicas(source, served),
        machines=machines,
        batch_sizes=BATCH_SIZES if batch_size is None else (batch_size,),
        chunk_sizes=tuple(size for size in CHUNK_SIZES if size <= max(length.value, CHUNK_SIZES[0]))
        if prefill_chunk_size is None
        else (prefill_chunk_size,),
        num_cores=tensor_parallel_size,
        on_tried=on_tried,
    )
    fixed = {"model": model, "trace": trace, "slo": slo, "max_queue_size": max_queue_size, "price": price}
    plan = _plan_of_the_cheapest(search, {**fixed, **options, "constants": constants, "sequence_length": length.value})
    tried = tuple(sorted(search.tried, key=_rank))
    return Sweep(
        model=source.name,
        trace=trace,
        slo=slo,
        best=plan,
        choice=_choice(tried, slo, has_best=plan is not None),
        tried=tried,
        skipped=skipped,
    )


def _plan_of_the_cheapest(search: Search, options: dict[str, Any]) -> CapacityPlan | None:
    """Return the plan of the cheapest configuration that fits in memory, None if there is none."""
    while (best := search.run()) is not None:
        chosen = {
            "instance": best.instance,
            "num_replicas": best.num_replicas,
            "tensor_parallel_size": best.num_cores,
            "batch_size": best.batch_size,
            "prefill_chunk_size": best.prefill_chunk_size,
        }
        try:
            return plan_capacity(**{**options, **chosen})
        except DeviceMemoryError as error:
            search.exclude(best, str(error).splitlines()[0])
    return None


def _machines(
    instance: str | None, price: float | None, constants: str | Path | None
) -> tuple[list[Machine], dict[str, str]]:
    """Return instances with a price, the cheapest cores first, and those without."""
    names = instance_names(instance)
    if price is not None and len(names) > 1:
        message = f"price={price} is for one instance, but {len(names)} are tried."
        raise ConfigError(message, hint="Name the instance, or remove it.", option="price", value=price)
    machines = [choose_machine(name, price=price, constants=constants) for name in names]
    priced = [one for one in machines if one.price_usd_per_h is not None]
    skipped = {one.instance.value.name: "no price is published" for one in machines if one.price_usd_per_h is None}
    if not priced:
        message = f"No price of {', '.join(names)} is published."
        raise ConfigError(message, hint="Pass --price for one instance.", option="price", value=None)
    return sorted(priced, key=lambda one: (usd_of(one) / one.num_logical_cores, usd_of(one))), skipped


def _with_cores(machines: list[Machine], num_cores: int) -> list[Machine]:
    """Return the instances that have so many cores for a replica."""
    legal = [one for one in machines if num_cores in legal_core_counts(one.instance.value).counts]
    if not legal:
        require_tensor_parallel_size(machines[-1].instance.value, num_cores)
    return legal


def _rank(one: Tried) -> tuple[bool, float, float]:
    return not one.meets_slo, one.usd_per_h or math.inf, -float(one.numbers.get("slo_attainment", 0.0))


def _choice(tried: tuple[Tried, ...], slo: SLO, *, has_best: bool) -> Choice[str | None]:
    if not has_best:
        return Choice(value=None, reason=f"no configuration that was tried meets {slo}")
    best, *others = tried
    reason = f"the lowest price for {slo}: ${number(best.usd_per_h or 0)} an hour, simulated"
    rejected = tuple(Rejected(candidate=one.label, reason=one.reason) for one in others if one.meets_slo)[:5]
    return Choice(value=best.label, reason=reason, rejected=rejected)
