"""Errors of predictions against published values: in sample, with a part left out, and as intervals and orders."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from cases import Case, Row, cases
from fit import build, fit
from structures import SHIPPED, STRUCTURES, structure

from optimum_neuron.simulator import EXACT, Band

FITTED = ("tpot_ms", "ttft_ms", "decode_ms", "prefill_ms", "latency_ms")
"""Metrics that constants are fitted on; the others follow from them and are only scored."""

FEW = {
    "mixture.decode_ms": (0.8, 1.25, "two profiles, left out of the fit"),
    "mixture.prefill_ms": (0.75, 1.5, "two profiles, left out of the fit"),
    "mixture.decode_mbu": (0.8, 2.0, "two profiles, which read experts twice; left out of the fit"),
    "mixture.prefill_mfu": (0.65, 1.35, "two profiles, left out of the fit"),
    "mixture.decode_hbm_bytes": (0.95, 2.0, "two profiles, which read experts twice"),
    "hybrid.ttft_ms": (0.5, 2.0, "one family with linear attention, left out of the fit"),
    "hybrid.tpot_ms": (0.8, 2.0, "one family with linear attention, left out of the fit"),
    "trn2.ttft_ms": (0.4, 2.5, "three published prompts on Trainium2, left out of the fit"),
    "trn2.tpot_ms": (0.6, 1.7, "three published steps on Trainium2"),
    "vit.latency_ms": (0.7, 1.4, "one vision transformer"),
    "vit.throughput_per_s": (0.7, 1.4, "one vision transformer"),
    "diffusion.latency_ms": (0.75, 1.45, "two U-Nets, left out of the fit"),
    "diffusion.throughput_per_s": (0.7, 1.35, "two U-Nets, left out of the fit"),
    "inf1-cnn.latency_ms": (0.9, 3.0, "one convolutional network on NeuronCore-v1, left out of the fit"),
    "inf1-cnn.throughput_per_s": (0.3, 1.1, "one convolutional network on NeuronCore-v1, left out of the fit"),
    "inf1-pipeline.latency_ms": (0.6, 1.6, "one published NeuronCore Pipeline, left out of the fit"),
    "inf1-pipeline.throughput_per_s": (0.6, 1.6, "one published NeuronCore Pipeline, left out of the fit"),
    "profile.decode_hbm_bytes": (EXACT.low, EXACT.high, EXACT.basis),
}
"""Classes of one family, or with fewer than the four rows that a quantile needs: a judgment, with its reason."""
LEVEL = 0.8
"""Share of values that an interval holds."""
FAR = 1.1
"""Ratio of two published values from which their order is asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """A case, predicted with everything and with its own part left out."""

    case: Case
    predicted: float
    blind: float

    @property
    def error(self) -> float:
        """Relative, in sample."""
        return self.predicted / self.case.row.value - 1

    @property
    def blind_error(self) -> float:
        """Relative, with its part left out."""
        return self.blind / self.case.row.value - 1

    @property
    def group(self) -> str:
        """Class of the estimate, as intervals are kept."""
        row = self.case.row
        if row.instance.startswith("inf1"):
            kind = "-pipeline" if (row.cores or 1) > 1 else "-cnn" if row.category == "cnn" else ""
            return f"inf1{kind}.{row.metric}"
        if row.category == "decoder" and row.instance.startswith("trn2"):
            return f"trn2.{row.metric}"
        held_out = row.use == "held-out" and row.category == "decoder"
        return f"{'held-out' if held_out else row.category}.{row.metric}"


def is_fitted(case: Case) -> bool:
    """Whether constants are fitted on a case."""
    row = case.row
    few = row.category in ("mixture", "hybrid", "diffusion", "served", "graph")
    few |= row.instance.startswith("inf1") and (row.category == "cnn" or (row.cores or 1) > 1)
    few |= row.metric == "ttft_ms" and row.instance.startswith("trn2")
    few |= row.use == "held-out"
    return row.metric in FITTED and not few


def family_of(row: Row) -> str:
    """The family of a row's model."""
    return row.family


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """Everything that a fit and its validation found."""

    values: dict[str, float]
    """Constants of the shipped structure, fitted on everything."""
    scored: list[Scored]
    chosen: dict[str, str]
    """Structure that explains all other parts best, by part."""


def score(rows: Sequence[Row], part_of: Callable[[Row], str] = family_of, names: Iterable[str] = STRUCTURES) -> Score:
    """Fit on everything, then every structure without each part, and predict the part by the best of them.

    Args:
        rows: Published values.
        part_of: Group of a row that is left out together; families of models by default.
        names: Structures to choose from.
    """
    with structure(SHIPPED):
        made = cases(rows)
        values, _ = fit([case for case in made if is_fitted(case)])
        predicted = [case.predict(build(values)) for case in made]
    loss: dict[str, float] = {}
    chosen: dict[str, str] = {}
    blind: dict[int, float] = {}
    for name in names:
        with structure(name):
            for part, (left, predictions) in _left_out(cases(rows), values, part_of).items():
                if left < loss.get(part, np.inf):
                    loss[part], chosen[part] = left, name
                    blind |= predictions
    scored = [
        Scored(case=case, predicted=told, blind=blind.get(index, told))
        for index, (case, told) in enumerate(zip(made, predicted, strict=True))
    ]
    return Score(values=values, scored=scored, chosen=chosen)


def _left_out(
    made: Sequence[Case], values: Mapping[str, float], part_of: Callable[[Row], str]
) -> dict[str, tuple[float, dict[int, float]]]:
    """The loss on all others and the predictions by index, for each part that constants are fitted on."""
    found = {}
    used = [case for case in made if is_fitted(case)]
    for part in sorted({part_of(case.row) for case in used}):
        others, left = fit([case for case in used if part_of(case.row) != part], values)
        constants = build(others)
        own = {index: case.predict(constants) for index, case in enumerate(made) if part_of(case.row) == part}
        found[part] = (left, own)
    return found


def grouped(scored: Iterable[Scored]) -> dict[str, list[Scored]]:
    """By class of estimates."""
    rows = sorted(scored, key=lambda s: s.group)
    return {name: list(group) for name, group in itertools.groupby(rows, key=lambda s: s.group)}


def bands(scored: Iterable[Scored]) -> dict[str, Band]:
    """80 % intervals around values with their family left out; by judgment where there are few."""
    made = {}
    for name, group in grouped(scored).items():
        if name.startswith("held-out"):
            continue
        low, high, basis = FEW.get(name) or (
            *interval(group),
            f"{len(group)} published values, each predicted without its family",
        )
        made[name] = Band(low=low, high=high, num_rows=len(group), basis=basis)
    return made


def interval(group: Collection[Scored]) -> tuple[float, float]:
    """Ends of an interval as factors on the value: a conformal quantile of the errors of left-out values.

    The k-th smallest of n errors, which are absolute logarithms of published over predicted, k = (n + 1) level rounded
    up, holds that of the next value with at least the level's probability where it is like them (split conformal
    prediction: Vovk, Gammerman and Shafer 2005; Lei et al. 2018).
    """
    errors = sorted(abs(math.log(s.case.row.value / s.blind)) for s in group)
    number = min(math.ceil(LEVEL * (len(errors) + 1) - 1e-9), len(errors))
    return math.exp(-errors[number - 1]), math.exp(errors[number - 1])


def pooled_interval(group: Collection[Scored]) -> tuple[float, float]:
    """The same with families that weigh alike, whatever number of values each has.

    The distribution of errors is the mean of those of the families (pooled distribution functions: Dunn, Wasserman and
    Ramdas 2022), and the level is raised by (n + 1) / n as above.
    """
    counts = collections.Counter(s.case.row.family for s in group)
    errors = sorted((abs(math.log(s.case.row.value / s.blind)), 1 / counts[s.case.row.family]) for s in group)
    needed = min(LEVEL * (len(errors) + 1) / len(errors), 1.0) * len(counts) - 1e-9
    totals = itertools.accumulate(weight for _, weight in errors)
    error = next((error for (error, _), total in zip(errors, totals, strict=True) if total >= needed), errors[-1][0])
    return math.exp(-error), math.exp(error)


Rule = Callable[[Collection[Scored]], tuple[float, float]]
"""How the ends of an interval follow from errors."""


def left_out_coverage(group: Sequence[Scored], rule: Rule = interval) -> float | None:
    """Share of values that the interval of all the other values holds; None for an interval by judgment."""
    if group[0].group in FEW:
        return None
    others = [[other for other in group if other is not one] for one in group]
    return float(np.mean([coverage([one], *rule(rest)) for one, rest in zip(group, others, strict=True)]))


def coverage(group: Iterable[Scored], low: float, high: float) -> float:
    """Share of published values inside the interval around blind predictions."""
    return float(np.mean([low <= s.case.row.value / s.blind <= high for s in group]))


def family_coverage(group: Sequence[Scored], rule: Rule = interval, *, alike: bool = False) -> float | None:
    """The same with each family against the interval of all the others: the expected coverage of a new family.

    With `alike`, each family weighs the same in the share, else each value. None for an interval by judgment, and for a
    single family.
    """
    families = sorted({s.case.row.family for s in group})
    if group[0].group in FEW or len(families) < 2:
        return None
    parts = {family: [s for s in group if s.case.row.family == family] for family in families}
    shares = [coverage(own, *rule([s for s in group if s not in own])) for own in parts.values()]
    return float(np.average(shares, weights=None if alike else [len(own) for own in parts.values()]))


def summary(group: Sequence[Scored]) -> Mapping[str, float]:
    """Median error, share within 25 %, bias, and coverage of the class's own interval."""
    errors = np.array([s.error for s in group])
    blind = np.array([s.blind_error for s in group])
    return {
        "median": float(np.median(np.abs(errors))),
        "within": float((np.abs(errors) <= 0.25).mean()),
        "blind_median": float(np.median(np.abs(blind))),
        "blind_within": float((np.abs(blind) <= 0.25).mean()),
        "blind_bias": float(np.median(blind)),
    }


def by_configuration(group: Iterable[Scored]) -> list[tuple[float, float]]:
    """Published and blind value of each configuration: the medians of its rows, which differ by release and day."""
    found: dict[tuple[object, ...], list[Scored]] = {}
    for s in group:
        found.setdefault(_configuration(s.case.row), []).append(s)
    return [
        (float(np.median([s.case.row.value for s in rows])), float(np.median([s.blind for s in rows])))
        for rows in found.values()
    ]


def most_within(group: Iterable[Scored], share: float = 0.25) -> int:
    """Return how many values one prediction for each configuration, the best one, could have within a share of them."""
    found: dict[tuple[object, ...], list[float]] = {}
    for s in group:
        found.setdefault(_configuration(s.case.row), []).append(s.case.row.value)
    return sum(
        max(
            sum(abs(guess / value - 1) <= share + 1e-9 for value in values)
            for guess in (factor * value for value in values for factor in (1 - share, 1.0, 1 + share))
        )
        for values in found.values()
    )


def _configuration(row: Row) -> tuple[object, ...]:
    shape = (row.batch, row.sequence_length, row.input_length, row.concurrency, row.weight_bytes)
    return (row.model, row.instance, row.stack, row.cores, *shape)


def pair_order(values: Iterable[tuple[float, float]]) -> tuple[int, int]:
    """Pairs whose published values differ by over 10 %: correctly ordered ones, and all.

    Args:
        values: published and predicted.
    """
    alike = total = 0
    for (left, first), (right, second) in itertools.combinations(values, 2):
        if 1 / FAR < left / right < FAR:
            continue
        total += 1
        alike += (first > second) == (left > right)
    return alike, total
