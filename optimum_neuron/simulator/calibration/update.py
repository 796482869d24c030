"""Bayesian update of constants: their logarithms are normal around the published values, with the published spread.

    posterior = update(predict, measured, deviations, weights, spreads)

The posterior is found by Gauss-Newton steps on predictions that are linearized around each step. Errors have Student's
distribution (Lange, Little, and Taylor 1989): the further a value is from all others, the less it counts, to almost
nothing. Such a likelihood may have several maxima, so the steps begin at the constants before, and at those that least
squares gives. Many values of one model count as the square root of their number, as in the published fit: their errors
are alike. It depends on nothing but numpy.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FREEDOM = 4.0
"""Degrees of freedom of the distribution of errors, a usual choice for few values (Lange, Little, and Taylor 1989)."""
NUM_STEPS = 20
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
    shares: np.ndarray
    """What each value counts, of one that is predicted exactly: at most 1."""
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

    def descend(start: np.ndarray, freedom: float) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Return the cost, the moves, the predictions, and their derivatives at a minimum."""

        def cost(moved: np.ndarray, residuals: np.ndarray) -> float:
            squares = (residuals / deviations) ** 2
            loss = squares if math.isinf(freedom) else (freedom + 1) * np.log1p(squares / freedom)
            return float(np.sum(weights * loss) + np.sum((moved / spreads) ** 2))

        moved, predicted = start, predict(start)
        lowest = cost(moved, measured - predicted)
        jacobian = derivatives(predict, moved, predicted, np.ones(len(moved), bool))
        has_effect = np.abs(jacobian).max(axis=0) > 0
        for _ in range(NUM_STEPS):
            residuals = measured - predicted
            precisions = weights / deviations**2 * _counts(residuals / deviations, freedom)
            normal = (jacobian.T * precisions) @ jacobian + np.diag(spreads**-2)
            step = np.linalg.solve(normal, jacobian.T @ (precisions * residuals) - moved / spreads**2)
            before = lowest
            for part in (1.0, 0.5, 0.25, 0.1):
                found = predict(moved + part * step)
                lowest = cost(moved + part * step, measured - found)
                if lowest < before:
                    break
            else:
                return before, moved, predicted, jacobian
            moved, predicted = moved + part * step, found
            jacobian = derivatives(predict, moved, predicted, has_effect)
            if before - lowest < 1e-4 * before:
                break
        return lowest, moved, predicted, jacobian

    start = np.zeros(len(spreads))
    least_squares = descend(start, math.inf)[1]
    _, moved, predicted, jacobian = min(
        (descend(one, FREEDOM) for one in (start, least_squares)), key=operator.itemgetter(0)
    )
    residuals = measured - predicted
    counts = _counts(residuals / deviations, FREEDOM)
    precisions = weights / deviations**2 * counts
    return Posterior(
        moved=moved,
        covariance=np.linalg.inv((jacobian.T * precisions) @ jacobian + np.diag(spreads**-2)),
        predicted=predicted,
        jacobian=jacobian,
        residuals=residuals,
        precisions=precisions,
        shares=counts / _counts(np.zeros(1), FREEDOM),
        spreads=spreads,
    )


def _counts(sizes: np.ndarray, freedom: float) -> np.ndarray:
    """Return what values count whose errors are so many deviations, of ones with normal errors."""
    return sizes**0 if math.isinf(freedom) else (freedom + 1) / (freedom + sizes**2)


def derivatives(
    predict: Callable[[np.ndarray], np.ndarray], moved: np.ndarray, predicted: np.ndarray, has_effect: np.ndarray
) -> np.ndarray:
    """Return the derivatives of predictions by the constants that have an effect; 0 for the others.

    Args:
        predict: as for `update`.
        moved: moves of the logarithms of the constants.
        predicted: logarithms of the predictions there.
        has_effect: of each constant.
    """
    import numpy as np

    found = np.zeros((len(predicted), len(moved)))
    for column in np.flatnonzero(has_effect):
        step = np.where(np.arange(len(moved)) == column, STEP, 0.0)
        found[:, column] = (predict(moved + step) - predicted) / STEP
    return found


def as_published(spreads: np.ndarray, slopes: np.ndarray, common: np.ndarray) -> np.ndarray:
    """Return the spreads of constants before, as far as published values of the measured classes allow.

    A fit leaves a constant open that hardly shows in published values, such as the host's time in large models. Where
    it is most of a value, it may move the value no further than published values of the class are off together.

    Args:
        spreads: of the fit.
        slopes: derivatives of the logarithms of the predictions by those of the constants.
        common: deviation of each value that published values of its class on one server have in common.
    """
    import numpy as np

    sizes = np.abs(slopes)
    limits = np.where(sizes > 0, common[:, None] / np.maximum(sizes, 1e-12), np.inf).min(axis=0)
    return np.minimum(spreads, limits)
