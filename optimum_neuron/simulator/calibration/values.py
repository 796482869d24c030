"""One value of a calibration: measured, and predicted before, after, and without its own run."""

from __future__ import annotations

import dataclasses
from typing import Any

from .predicting import Prediction


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibratedValue:
    """One measured value, with its predictions. Predictions are simulated."""

    prediction: Prediction
    metric: str
    measured: float
    before: float
    """Predicted by the constants before."""
    after: float
    """Predicted by the updated constants."""
    left_out: float
    """Predicted by constants that were updated without its run."""
    low: float
    """Lower end of the 80 % interval of that prediction."""
    high: float
    counted: float
    """What it counted, of a value that the updated constants predict exactly: less, the further off it is."""
    contradicted: str | None = None
    """Why it contradicts the others, if it does."""

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.metric.endswith("per_s")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with relative errors."""
        predicted = {name: getattr(self, name) for name in ("before", "after", "left_out")}
        return {
            "origin": self.prediction.run.origin,
            "model": str(self.prediction.first.model),
            "metric": self.metric,
            "measured": self.measured,
            **predicted,
            "low": self.low,
            "high": self.high,
            "counted": self.counted,
            "errors": {name: value / self.measured - 1 for name, value in predicted.items()},
            "contradicted": self.contradicted,
        }
