"""Errors of predictions against published values: in sample, with a part left out, and as intervals and orders."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from cases import Case, Row
from fit import build, fit

from optimum_neuron.simulator import EXACT, Band

FITTED = ("tpot_ms", "ttft_ms", "decode_ms", "prefill_ms", "latency_ms")
"""Metrics that constants are fitted on; the others follow from them and are only scored."""

FEW = {
    "mixture.tpot_ms": (0.4, 2.5, "one model with experts, left out of the fit"),
    "trn2.ttft_ms": (0.4, 2.5, "three published prompts on Trainium2, left out of the fit"),
    "trn2.tpot_ms": (0.6, 1.7, "three published steps on Trainium2"),
    "vit.latency_ms": (0.7, 1.4, "one vision transformer"),
    "vit.throughput_per_s": (0.7, 1.4, "one vision transformer"),
    "cnn.latency_ms": (0.75, 1.35, "ResNets only; other convolutional networks may be further off"),
    "cnn.throughput_per_s": (0.75, 1.35, "ResNets only; other convolutional networks may be further off"),
    "diffusion.latency_ms": (0.75, 1.45, "two U-Nets, left out of the fit"),
    "diffusion.throughput_per_s": (0.7, 1.35, "two U-Nets, left out of the fit"),
    "profile.decode_hbm_bytes": (EXACT.low, EXACT.high, EXACT.basis),
}
"""Classes with too few rows or families for quantiles: an interval by judgment, with its reason."""
FEW_FAMILIES = 4
"""Below this many families, intervals of all but one of them say nothing of that one."""
TAIL = 0.07
"""Part of the blind ratios beyond each end of an interval. Less than the tenth of an 80 % interval: ratios of a family
are alike, and with a tenth the intervals of all other families held only 72 % of it."""
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
        if row.category in ("decoder", "mixture") and row.instance.startswith("trn2") and row.category == "decoder":
            return f"trn2.{row.metric}"
        return f"{row.category}.{row.metric}"


def is_fitted(case: Case) -> bool:
    """Whether constants are fitted on a case."""
    row = case.row
    few = row.category in ("mixture", "hybrid", "diffusion") or (row.metric == "ttft_ms" and row.instance.startswith("trn2"))
    return row.metric in FITTED and not few


def family_of(row: Row) -> str:
    """The family of a row's model."""
    return row.family


def score(cases: Sequence[Case], part_of: Callable[[Row], str] = family_of) -> tuple[dict[str, float], list[Scored]]:
    """Fit on everything, then once more without each part, and predict.

    Args:
        cases: Published cases.
        part_of: Group of a case that is left out together; families of models by default.
    """
    used = [case for case in cases if is_fitted(case)]
    values = fit(used)
    constants = build(values)
    blind: dict[int, float] = {}
    for part in sorted({part_of(case.row) for case in used}):
        others = build(fit([case for case in used if part_of(case.row) != part], values))
        blind |= {id(case): case.predict(others) for case in cases if part_of(case.row) == part}
    scored = [
        Scored(case=case, predicted=(told := case.predict(constants)), blind=blind.get(id(case), told))
        for case in cases
    ]
    return values, scored


def grouped(scored: Iterable[Scored]) -> dict[str, list[Scored]]:
    """By class of estimates."""
    rows = sorted(scored, key=lambda s: s.group)
    return {name: list(group) for name, group in itertools.groupby(rows, key=lambda s: s.group)}


def bands(scored: Iterable[Scored]) -> dict[str, Band]:
    """80 % intervals with each family left out; a wide one if there are few rows."""
    made = {}
    for name, group in grouped(scored).items():
        low, high, basis = FEW.get(name) or (
            *interval(group),
            f"{len(group)} published values, each predicted without its family",
        )
        made[name] = Band(low=low, high=high, num_rows=len(group), basis=basis)
    return made


def interval(group: Iterable[Scored]) -> tuple[float, float]:
    """Ends of an interval as factors on the value, without the outer ratios: at least one at each end."""
    ratios = sorted(s.case.row.value / s.blind for s in group)
    outer = max(1, int(TAIL * len(ratios)))
    return min(ratios[outer], 1.0), max(ratios[-1 - outer], 1.0)


def coverage(group: Iterable[Scored], low: float, high: float) -> float:
    """Share of published values inside the interval around blind predictions."""
    return float(np.mean([low <= s.case.row.value / s.blind <= high for s in group]))


def family_coverage(group: Sequence[Scored]) -> float | None:
    """The same with each family against the interval of all the others: the expected coverage of a new family.

    None for an interval by judgment, and where there are too few families.
    """
    families = {s.case.row.family for s in group}
    if group[0].group in FEW or len(families) < FEW_FAMILIES:
        return None
    shares = []
    for family in families:
        own = [s for s in group if s.case.row.family == family]
        shares.append(len(own) * coverage(own, *interval([s for s in group if s.case.row.family != family])))
    return sum(shares) / len(group)


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
        row = s.case.row
        shape = (row.batch, row.sequence_length, row.input_length, row.concurrency, row.weight_bytes)
        found.setdefault((row.model, row.instance, row.stack, row.cores, *shape), []).append(s)
    return [
        (float(np.median([s.case.row.value for s in rows])), float(np.median([s.blind for s in rows])))
        for rows in found.values()
    ]


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
