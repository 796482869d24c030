"""`compare`: a request on every instance and every legal core count that holds it, ranked; and the best, with why.

compare("meta-llama/Llama-3.1-8B", optimize="cost").best.reason
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..base.core import Choice, Rejected
from ..errors import ConfigError, DeviceMemoryError, invalid_choice
from ..hardware import INSTANCES, TARGETS, legal_core_counts, resolve_instance
from ..options.option import takes_options
from .entry import estimate_request
from .request import EstimateRequest, request_of
from .result import Estimate, Quantity

if TYPE_CHECKING:
    import torch

Goal = Literal["latency", "throughput", "cost"]

BATCHES = (1, 2, 4, 8, 16, 32, 64)
"""Batches that `batch_size="auto"` tries; those beyond the first that does not fit are left out."""
_MOST_REJECTED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """One request on many machines, simulated."""

    model: str
    goal: Goal
    ranked: tuple[Estimate, ...]
    """Options that fit, best first; those without a value for the goal come last."""
    skipped: Mapping[str, str] = dataclasses.field(hash=False)
    """Instances that cannot take it, with the reason."""
    best: Choice[str]
    """The first of them, the reason, and the rejected ones."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "simulated": True,
            "model": self.model,
            "goal": self.goal,
            "best": self.best.to_dict(),
            "ranked": [one.to_dict() for one in self.ranked],
            "skipped": dict(self.skipped),
        }

    def _repr_html_(self) -> str:
        from ..pages import comparison_page, embedded

        return embedded(comparison_page(self.to_dict()))


@takes_options(EstimateRequest)
def compare(
    model: Any,
    *,
    optimize: Goal = "cost",
    batch_size: int | Literal["auto"] = 1,
    example_inputs: Sequence[torch.Tensor] | None = None,
    **options: Any,
) -> Comparison:
    """Estimate a request on every instance and legal core count that fits.

    With a family as `instance` it stays within the family; with an instance it compares its core counts. A price is of
    one instance.

    Args:
        model: as for `estimate`.
        optimize: Ranking goal: "latency", "throughput", or "cost".
        batch_size: batch size of a run or step; "auto" for every power of two up to 64 that fits.
        example_inputs: as for `estimate`.
        **options: as for `estimate`.

    Raises:
        ConfigError: the goal is unknown, a price names no instance, or nothing at all fits.
    """
    if optimize not in get_args(Goal):
        raise invalid_choice("optimize", optimize, get_args(Goal))
    request = request_of(options)
    names = instance_names(request.instance)
    if request.price is not None and len(names) > 1:
        message = f"price={request.price} is for one instance, but {len(names)} are compared."
        hint = "Name the instance that it is for, or remove it."
        raise ConfigError(message, hint=hint, option="price", value=request.price)
    estimates: list[Estimate] = []
    skipped: dict[str, str] = {}
    batches = BATCHES if batch_size == "auto" else (batch_size,)
    estimate_one = functools.partial(estimate_request, model, example_inputs=example_inputs)
    for name in names:
        try:
            estimates += _on_instance(estimate_one, dataclasses.replace(request, instance=name), batches)
        except (DeviceMemoryError, ConfigError) as error:
            if isinstance(error, ConfigError) and len(names) == 1:
                raise
            verdict = "does not fit: " if isinstance(error, DeviceMemoryError) else ""
            skipped[name] = verdict + str(error).splitlines()[0].removesuffix(":")
    ranked = tuple(sorted(estimates, key=lambda one: _key(one, optimize)))
    if not ranked:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in skipped.items())
        message = f"No instance can take the request:\n{reasons}"
        raise ConfigError(message, hint="Make the request smaller.", skipped=skipped)
    best = _best(ranked, optimize)
    return Comparison(model=ranked[0].model, goal=optimize, ranked=ranked, skipped=skipped, best=best)


def instance_names(instance: str | None) -> list[str]:
    """Return the instances of a family, one by its name, or all that every model can be compiled for."""
    if instance is None:
        families = [name for name, target in TARGETS.items() if target.compilable]
        return [name for name, spec in INSTANCES.items() if spec.family in families]
    family = instance.strip().lower()
    if family in TARGETS:
        return [spec.name for spec in TARGETS[family].instances]
    return [resolve_instance(instance).value.name]


def _on_instance(
    estimate_one: Callable[[EstimateRequest], Estimate], request: EstimateRequest, batches: Sequence[int]
) -> list[Estimate]:
    """Estimates of every core count and batch that fits an instance; an error if the smallest batch does not."""
    first = estimate_one(dataclasses.replace(request, batch_size=batches[0]))
    counts: list[int | None] = [request.tensor_parallel_size]
    if request.tensor_parallel_size is None and first.divisible:
        own = first.num_cores.value
        counts = [own, *(n for n in legal_core_counts(INSTANCES[first.instance.value]).counts if n > own)]
    found = []
    for count in counts:
        for batch_size in batches:
            try:
                found.append(
                    estimate_one(dataclasses.replace(request, tensor_parallel_size=count, batch_size=batch_size))
                )
            except DeviceMemoryError:
                break
    return found


def _deciding(one: Estimate, goal: Goal) -> Quantity | None:
    if goal == "cost" and one.load is not None:
        usd = one.load.usd_per_h
        return None if usd is None else Quantity.exact(usd, "load")
    name = {"latency": "latency_ms", "throughput": "throughput_per_s", "cost": "usd_per_1m"}[goal]
    return one.quantities.get(name)


def _key(one: Estimate, goal: Goal) -> tuple[bool, float]:
    quantity = _deciding(one, goal)
    if quantity is None:
        return True, 0.0
    return False, -quantity.value if goal == "throughput" else quantity.value


def _label(one: Estimate) -> str:
    batch = "" if one.batch_size in (None, 1) else f", batches of {one.batch_size}"
    return f"{one.instance.value}, {one.num_copies.value} x {one.num_cores.value} cores{batch}"


def _best(ranked: tuple[Estimate, ...], goal: Goal) -> Choice[str]:
    unit = {"latency": "ms for a request", "throughput": "requests a second", "cost": "dollars for a million"}[goal]
    if goal == "cost" and ranked[0].load is not None:
        unit = "dollars an hour for instances that keep up with the load"
    first, *others = ranked
    quantity = _deciding(first, goal)
    if quantity is None:
        return Choice(value=_label(first), reason="no price of these instances is published: pass --price")
    rejected = []
    for one in others[:_MOST_REJECTED]:
        other = _deciding(one, goal)
        if other is None:
            rejected.append(Rejected(candidate=_label(one), reason="no price is published"))
            continue
        overlap = other.low <= quantity.high and quantity.low <= other.high
        close = ", within the interval" if overlap else ""
        rejected.append(Rejected(candidate=_label(one), reason=f"{other.value:.4g} {unit}{close}"))
    direction = "most" if goal == "throughput" else "fewest"
    reason = f"{direction} {unit}: {quantity.value:.4g}, simulated"
    return Choice(value=_label(first), reason=reason, rejected=tuple(rejected))
