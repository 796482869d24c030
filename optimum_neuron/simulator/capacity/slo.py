"""Service level objectives: limits for the times of each request.

>>> parse_slo("ttft=500,tpot=50")
SLO(ttft_ms=500.0, tpot_ms=50.0, e2el_ms=None, attainment=0.99)
>>> parse_slo("ttft=2s", attainment=0.9).ttft_ms
2000.0
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

from ...batching import SimulatedTimes
from ...errors import ConfigError, nearest

_LIMITS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "latency_s"}
"""Names of limits, as in vLLM's `--goodput`, to the times of a request."""
_ALSO = {"latency": "e2el", "e2e": "e2el"}
_VALUE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s)?", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SLO:
    """Limits for the times of a request, and the share of requests that must keep them."""

    ttft_ms: float | None = None
    """Time to the first token."""
    tpot_ms: float | None = None
    """Time per output token after the first."""
    e2el_ms: float | None = None
    """End-to-end latency."""
    attainment: float = 0.99
    """Share of all requests that must keep all limits, above 0 and at most 1."""

    def __post_init__(self) -> None:
        if not 0 < self.attainment <= 1:
            message = f"slo_attainment={self.attainment} is no share of requests."
            hint = "Pass a number above 0 and at most 1."
            raise ConfigError(message, hint=hint, option="slo_attainment", value=self.attainment)

    @property
    def limits_ms(self) -> dict[str, float]:
        """Limits by name."""
        values = {name: getattr(self, f"{name}_ms") for name in _LIMITS}
        return {name: value for name, value in values.items() if value is not None}

    def longest_ms(self, num_answer: int) -> float:
        """Return the longest time of a request that keeps the limits, with so many tokens; infinite without a limit."""
        if self.e2el_ms is not None:
            return self.e2el_ms
        if self.ttft_ms is None or self.tpot_ms is None:
            return math.inf
        return self.ttft_ms + (num_answer - 1) * self.tpot_ms

    def is_kept_by(self, times: SimulatedTimes, *, slower: float = 1.0) -> bool:
        """Return whether a request keeps all limits if its times are `slower` as long."""
        return not self.broken_by(times, slower=slower)

    def broken_by(self, times: SimulatedTimes, *, slower: float = 1.0) -> list[str]:
        """Return the limits that a request breaks; an answer of one token has no time per output token."""
        values = {name: getattr(times, _LIMITS[name]) for name in self.limits_ms}
        return [
            name
            for name, limit_ms in self.limits_ms.items()
            if values[name] is not None and 1e3 * slower * values[name] > limit_ms
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**{f"{name}_ms": value for name, value in self.limits_ms.items()}, "attainment": self.attainment}

    def __str__(self) -> str:
        limits = ", ".join(f"{name} <= {value:g} ms" for name, value in self.limits_ms.items())
        return f"{limits} for {100 * self.attainment:g} % of the requests"


def parse_slo(text: str, *, attainment: float = 0.99) -> SLO:
    """Return the limits in a text such as "ttft=500,tpot=50"; values without a unit are milliseconds.

    vLLM's form "ttft:500 tpot:50" is read too.

    Raises:
        ConfigError: a limit has an unknown name or value, or there is none.
    """
    limits: dict[str, float] = {}
    for part in text.replace(",", " ").split():
        name, value = re.match(r"([^=:]*)[=:]?(.*)", part).groups()  # type: ignore[union-attr]
        name = _ALSO.get(name.strip().lower(), name.strip().lower())
        if name not in _LIMITS:
            message = f"{part!r} is no limit of a request{nearest(name, _LIMITS) or '.'}"
            raise ConfigError(message, hint=f"Use {', '.join(_LIMITS)}.", option="slo", value=text)
        match = _VALUE.fullmatch(value.strip())
        if match is None or not float(match["number"]):
            message = f"{part!r} has no time above 0."
            raise ConfigError(message, hint="Pass for example ttft=500 or ttft=0.5s.", option="slo", value=text)
        limits[f"{name}_ms"] = float(match["number"]) * (1e3 if match["unit"] == "s" else 1.0)
    if not limits:
        raise ConfigError("The objective has no limit.", hint="Pass ttft=500,tpot=50.", option="slo", value=text)
    return SLO(**limits, attainment=attainment)
