"""How far predictions are from what was published: in sample, with each family left out, and as intervals."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cases import Case
from fit import build, fit

from optimum_neuron.simulator.constants import Band

FITTED = ("tpot_ms", "ttft_ms", "decode_ms", "prefill_ms", "latency_ms")
"""Metrics that constants are fitted on; the others follow from them and are only scored."""

FEW = {
    "mixture.tpot_ms": (0.4, 2.5, "one model with experts, left out of the fit"),
    "trn2.ttft_ms": (0.4, 2.5, "three published prompts on Trainium2, left out of the fit"),
    "trn2.tpot_ms": (0.6, 1.7, "three published steps on Trainium2"),
    "vit.latency_ms": (0.7, 1.4, "one vision transformer"),
    "vit.throughput_per_s": (0.7, 1.4, "one vision transformer"),
}
"""Classes with too few rows for quantiles: an interval by judgment, and what there is."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scored:
    """A case, predicted with all families and without its own."""

    case: Case
    predicted: float
    blind: float

    @property
    def error(self) -> float:
        """Relative, in sample."""
        return self.predicted / self.case.row.value - 1

    @property
    def blind_error(self) -> float:
        """Relative, with the family left out."""
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
    few = row.category == "mixture" or (row.metric == "ttft_ms" and row.instance.startswith("trn2"))
    return row.metric in FITTED and not few


def score(cases: Sequence[Case]) -> tuple[dict[str, float], list[Scored]]:
    """Fit on everything, then once more without each family, and predict."""
    used = [case for case in cases if is_fitted(case)]
    values = fit(used)
    constants = build(values)
    blind: dict[int, float] = {}
    for family in sorted({case.row.family for case in used}):
        others = build(fit([case for case in used if case.row.family != family], values))
        blind |= {id(case): case.predict(others) for case in cases if case.row.family == family}
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
    """80 % intervals from what is left with each family left out; a wide one where there are few rows."""
    made = {}
    for name, group in grouped(scored).items():
        if name in FEW:
            low, high, basis = FEW[name]
            made[name] = Band(low=low, high=high, num_rows=len(group), basis=basis)
            continue
        ratios = [s.case.row.value / s.blind for s in group]
        # Of a few rows the outer ones, so that small classes do not promise more than they hold.
        low, high = np.quantile(ratios, 0.1, method="lower"), np.quantile(ratios, 0.9, method="higher")
        basis = f"{len(group)} published values, each predicted without its family"
        made[name] = Band(low=float(min(low, 0.99)), high=float(max(high, 1.01)), num_rows=len(group), basis=basis)
    return made


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


def pair_order(group: Sequence[Scored]) -> tuple[float, int]:
    """Share of pairs whose published values differ by over 10 % that predictions order alike, and their number."""
    alike = total = 0
    for left, right in itertools.combinations(group, 2):
        published = left.case.row.value / right.case.row.value
        if 1 / 1.1 < published < 1.1:
            continue
        total += 1
        alike += (left.blind > right.blind) == (published > 1)
    return (alike / total if total else 1.0), total
