"""Bayesian update of constants: their logarithms are normal around the published values, with the published spread.

    posterior = update(predict, measured, deviations, weights, spreads)

The posterior is found by Gauss-Newton steps on predictions that are linearized around each step. A value beyond 1.5
deviations counts linearly (Huber 1964). Many values of one model count as the square root of their number, as in the
published fit: their errors are alike. It depends on nothing but numpy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

HUBER = 1.5
"""Standardized residuals beyond this count linearly."""
NUM_STEPS = 6
STEP = 1e-3
"""Step of a logarithm for a difference quotient."""


@dataclasses.dataclass(frozen=True)
class Posterior:
    """Constants after an update. Everything is in logarithms; constants are relative to those before."""

    moved: np.ndarray
    """Move of each constant."""
    covariance: np.ndarray
    predicted: np.ndarray
    """Prediction of each value with the moved constants."""
    jacobian: np.ndarray
    """Derivative of each prediction by each constant, there."""
    residuals: np.ndarray
    """Measured minus predicted."""
    precisions: np.ndarray
    """What each value counts: its weight over its variance, less for one that is far off."""
    spreads: np.ndarray
    """Standard deviations of the constants before."""

    def without(self, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return predictions of all values, and their variances, by the constants without some values."""
        import numpy as np

        counted = np.where(left_out, 0.0, self.precisions)
        normal = (self.jacobian.T * counted) @ self.jacobian + np.diag(self.spreads**-2)
        # Of the linearized problem at the posterior, whose residuals and moves are known.
        gradient = self.jacobian.T @ (counted * self.residuals) - self.moved / self.spreads**2
        covariance = np.linalg.inv(normal)
        predicted = self.predicted + self.jacobian @ covariance @ gradient
        return predicted, np.einsum("ij,jk,ik->i", self.jacobian, covariance, self.jacobian)


def update(
    predict: Callable[[np.ndarray], np.ndarray],
    measured: np.ndarray,
    deviations: np.ndarray,
    weights: np.ndarray,
    spreads: np.ndarray,
) -> Posterior:
    """Update constants with measured values.

    Args:
        predict: logarithms of the predictions, by the moves of the logarithms of the constants.
        measured: logarithms of the measured values.
        deviations: standard deviation of each, around a prediction with the right constants.
        weights: what each counts, at most 1.
        spreads: standard deviation of each constant before.
    """
    import numpy as np

    def cost(moved: np.ndarray, residuals: np.ndarray) -> float:
        size = np.abs(residuals) / deviations
        loss = np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2)
        return float(np.sum(weights * loss) + np.sum((moved / spreads) ** 2))

    def counts(residuals: np.ndarray) -> np.ndarray:
        size = np.abs(residuals) / deviations
        return weights / deviations**2 * np.minimum(1.0, HUBER / np.maximum(size, 1e-12))

    moved = np.zeros(len(spreads))
    predicted = predict(moved)
    jacobian = _jacobian(predict, moved, predicted, np.ones(len(moved), bool))
    has_effect = np.abs(jacobian).max(axis=0) > 0
    for _ in range(NUM_STEPS):
        residuals = measured - predicted
        precisions = counts(residuals)
        normal = (jacobian.T * precisions) @ jacobian + np.diag(spreads**-2)
        step = np.linalg.solve(normal, jacobian.T @ (precisions * residuals) - moved / spreads**2)
        before = cost(moved, residuals)
        for part in (1.0, 0.5, 0.25, 0.1):
            candidate = moved + part * step
            found = predict(candidate)
            if cost(candidate, measured - found) < before:
                break
        else:
            break
        gain = before - cost(candidate, measured - found)
        moved, predicted = candidate, found
        jacobian = _jacobian(predict, moved, predicted, has_effect)
        if gain < 1e-4 * before:
            break
    precisions = counts(measured - predicted)
    covariance = np.linalg.inv((jacobian.T * precisions) @ jacobian + np.diag(spreads**-2))
    return Posterior(moved, covariance, predicted, jacobian, measured - predicted, precisions, spreads)


def _jacobian(
    predict: Callable[[np.ndarray], np.ndarray], moved: np.ndarray, predicted: np.ndarray, has_effect: np.ndarray
) -> np.ndarray:
    """Return the derivatives by the constants that have an effect; 0 for the others."""
    import numpy as np

    found = np.zeros((len(predicted), len(moved)))
    for column in np.flatnonzero(has_effect):
        step = np.where(np.arange(len(moved)) == column, STEP, 0.0)
        found[:, column] = (predict(moved + step) - predicted) / STEP
    return found
