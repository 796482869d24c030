"""Least squares for the constants: robust, with priors, in numpy.

Every constant is positive and is fitted as its logarithm. A prior pulls it towards a documented value, or towards a
plain order of magnitude, so that leaving out a family cannot send a constant away that only this family determines. A
residual is the logarithm of predicted over published; large ones count linearly (Huber 1964). Steps are
Levenberg-Marquardt (Marquardt 1963).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from cases import Case

from optimum_neuron.simulator import Constants, CoreConstants, HostConstants, flat

HUBER = 0.2
"""Residuals beyond this count linearly."""
PRIOR_WEIGHT = 0.2
"""Residual of a constant that is one prior width away from its prior."""
RELEASES = 0.1
"""Spread of the logarithm of a constant between releases, beyond that of the fit. A judgment: releases move the same
configuration by 9 to 24 %, the largest over the smallest."""
FAMILY_POWER = 0.25
"""A family with n rows weighs n**(1 - 2 * power): many rows of one model do not decide alone."""


@dataclasses.dataclass(frozen=True)
class Prior:
    """Expected value of a constant, and the width of its logarithm."""

    value: float
    width: float
    why: str


V1 = "v1_"
"""Beginning of the constants of NeuronCore-v1, which are fitted last: rows of Inf1 change no other constant."""
PRIORS: Mapping[str, Prior] = {
    "row_overhead_bytes": Prior(328, 0.35, "DMA needs 2 to 4 KiB in one piece (NKI, DMA bandwidth guide)"),
    "tensor_factor": Prior(1.5, 0.3, "published utilization of large products, 60 to 70 %"),
    "vector_factor": Prior(3.0, 0.7, "judgment, after first fits"),
    "graph_vector_factor": Prior(1.5, 0.7, "judgment, after first fits"),
    "all_reduce_us": Prior(10.0, 0.5, "judgment, after first fits"),
    "all_reduce_chip_us": Prior(0.5, 0.7, "1 to 2 us for each hop (collective communication guide)"),
    "all_reduce_share": Prior(0.15, 0.6, "judgment, after first fits"),
    "launch_us": Prior(200.0, 0.5, "judgment, after first fits"),
    "waiting_reads": Prior(400.0, 0.5, "judgment, after first fits"),
    "flash_factor": Prior(0.4, 0.7, "judgment, after first fits"),
    "v3_all_reduce_chip_us": Prior(4.5, 0.5, "one published configuration over 16 chips"),
    "neuronx_token_ms": Prior(2.5, 0.5, "judgment, after first fits"),
    "neuronx_prefill_inf2_ms": Prior(18.0, 0.5, "judgment, after first fits"),
    "neuronx_prefill_trn1_ms": Prior(9.0, 0.5, "judgment, after first fits"),
    "vllm_token_ms": Prior(1.5, 0.5, "judgment, after first fits"),
    "vllm_row_ms": Prior(0.12, 0.5, "judgment, after first fits"),
    "vllm_prefill_ms": Prior(10.0, 0.7, "judgment, after first fits"),
    "nxd_token_ms": Prior(0.3, 0.5, "judgment, after first fits"),
    "nxd_prefill_ms": Prior(0.9, 0.7, "judgment, after first fits"),
    "copy_bytes_per_s": Prior(3.1e9, 0.3, "copies of inputs over PCIe"),
    "v1_compute_factor": Prior(1.0, 0.5, "cycles of NeuronCore-v1 over those of NeuronCore-v2: none were expected"),
    "v1_lone_core_share": Prior(0.5, 0.5, "judgment: one of four cores does not fill the memory's rate"),
}
"""Prior of each constant, before any measurement."""


def build(values: Mapping[str, float]) -> Constants:
    """Constants of flat values."""
    own = [field.name for field in dataclasses.fields(CoreConstants) if field.name != "lone_core_share"]
    v2 = CoreConstants(**{name: values[name] for name in own})
    v1 = dataclasses.replace(
        v2,
        tensor_factor=values["v1_compute_factor"] * v2.tensor_factor,
        graph_vector_factor=values["v1_compute_factor"] * v2.graph_vector_factor,
        lone_core_share=values["v1_lone_core_share"],
    )
    v3 = dataclasses.replace(v2, all_reduce_chip_us=values["v3_all_reduce_chip_us"])
    neuronx = HostConstants(
        token_ms=values["neuronx_token_ms"],
        row_ms=0.0,
        prefill_ms={"inf2": values["neuronx_prefill_inf2_ms"], "": values["neuronx_prefill_trn1_ms"]},
    )
    vllm = HostConstants(
        token_ms=values["vllm_token_ms"], row_ms=values["vllm_row_ms"], prefill_ms={"": values["vllm_prefill_ms"]}
    )
    nxd = HostConstants(token_ms=values["nxd_token_ms"], row_ms=0.0, prefill_ms={"": values["nxd_prefill_ms"]})
    return Constants(
        version=0,
        fitted_on="",
        cores={1: v1, 2: v2, 3: v3, 4: v3},
        hosts={"transformers-neuronx": neuronx, "vllm": vllm, "nxd-inference": nxd},
        copy_bytes_per_s=values["copy_bytes_per_s"],
        training_mfu=0.0,
        bands={},
    )


def fit(cases: Sequence[Case], start: Mapping[str, float] | None = None) -> tuple[dict[str, float], float]:
    """The constants that explain the cases best, and the loss for each case that is left.

    Those of NeuronCore-v1 follow the others, from the rows of Inf1.
    """
    first = {name: prior.value for name, prior in PRIORS.items()} if start is None else dict(start)
    of_v1 = [case for case in cases if case.row.instance.startswith("inf1")]
    others = [case for case in cases if case not in of_v1]
    shared, loss = _fitted(others, first, [name for name in PRIORS if not name.startswith(V1)])
    if not of_v1:
        return shared, loss
    return _fitted(of_v1, shared, [name for name in PRIORS if name.startswith(V1)])[0], loss


def _fitted(cases: Sequence[Case], start: Mapping[str, float], names: Sequence[str]) -> tuple[dict[str, float], float]:
    """Fit some constants and keep the others."""
    residuals = _residuals(cases, start, names)
    logs = minimize(residuals, np.log([start[name] for name in names]))
    fitted = dict(zip(names, np.exp(logs).tolist(), strict=True))
    return {**start, **fitted}, _huber(residuals(logs)) / len(cases)


def spread(cases: Sequence[Case], values: Mapping[str, float]) -> dict[str, float]:
    """Standard deviation of the logarithm of each constant, by the names of `flat`.

    The fit's own (the curvature of its loss at the optimum, times the variance of its residuals), and what a release of
    the SDK may move.
    """
    fitted: dict[str, float] = {}
    of_v1 = [case for case in cases if case.row.instance.startswith("inf1")]
    for some, is_v1 in (([case for case in cases if case not in of_v1], False), (of_v1, True)):
        names = [name for name in PRIORS if name.startswith(V1) == is_v1]
        if not some:
            continue
        residuals = _residuals(some, values, names)
        logs = np.log([values[name] for name in names])
        found = residuals(logs)
        jacobian = np.stack([(residuals(logs + step) - found) / 1e-4 for step in 1e-4 * np.eye(len(names))], axis=1)
        variance = _huber(found[: len(some)]) / len(some)
        deviations = np.sqrt(variance * np.diag(np.linalg.inv(jacobian.T @ jacobian)))
        fitted |= dict(zip(names, deviations.tolist(), strict=True))
    base = flat(build(values))
    total = dict.fromkeys(base, RELEASES**2)
    for name, deviation in fitted.items():
        moved = flat(build({**values, name: values[name] * 1.01}))
        for own, value in base.items():
            total[own] += (np.log(moved[own] / value) / np.log(1.01) * deviation) ** 2
    return {name: float(np.sqrt(variance)) for name, variance in total.items()}


def _residuals(
    cases: Sequence[Case], start: Mapping[str, float], names: Sequence[str]
) -> Callable[[np.ndarray], np.ndarray]:
    """Residuals of cases and of priors, as a function of the logarithms of some constants."""
    prior = np.log([PRIORS[name].value for name in names])
    width = np.array([PRIORS[name].width for name in names])
    published = np.log([case.row.value for case in cases])
    weights = _weights(cases)

    def residuals(logs: np.ndarray) -> np.ndarray:
        constants = build({**start, **dict(zip(names, np.exp(logs), strict=True))})
        predicted = np.log([case.predict(constants) for case in cases])
        return np.concatenate([weights * (predicted - published), PRIOR_WEIGHT * (logs - prior) / width])

    return residuals


def _weights(cases: Sequence[Case]) -> np.ndarray:
    rows = collections.Counter((case.row.category, case.row.family) for case in cases)
    weights = np.array([rows[case.row.category, case.row.family] ** -FAMILY_POWER for case in cases])
    return weights * np.sqrt(len(cases) / np.sum(weights**2))


def minimize(residuals: Callable[[np.ndarray], np.ndarray], start: np.ndarray, num_steps: int = 40) -> np.ndarray:
    """Levenberg-Marquardt on Huber's loss."""
    x, damping = start, 1e-2
    values = residuals(x)
    cost = _huber(values)
    for _ in range(num_steps):
        jacobian = np.stack([(residuals(x + step) - values) / 1e-4 for step in 1e-4 * np.eye(len(x))], axis=1)
        trust = np.minimum(1.0, HUBER / np.maximum(np.abs(values), 1e-12))
        normal = jacobian.T @ (jacobian * trust[:, None])
        gradient = jacobian.T @ (trust * values)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            candidate = x + np.clip(step, -0.7, 0.7)
            found = residuals(candidate)
            if _huber(found) < cost:
                break
            damping *= 4
        else:
            return x
        gain = cost - _huber(found)
        x, values, cost, damping = candidate, found, cost - gain, max(damping / 4, 1e-6)
        if gain < 1e-6 * cost:
            return x
    return x


def _huber(values: np.ndarray) -> float:
    size = np.abs(values)
    return float(np.sum(np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2)))
