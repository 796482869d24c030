"""Names and units of the numbers of estimates, as people read them.

>>> shown("tpot_ms", 13.877), shown("usd_per_1m", 1.4755), shown("mfu", 0.405)
('13.9 ms', '$1.476', '40.5 %')
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.wording import number, size, time_span

QUANTITIES = {
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "latency_ms": "latency of a request",
    "throughput_per_s": "requests per second",
    "tokens_per_s": "output tokens per second",
    "usd_per_1m": "price per million {priced}",
    "hbm_bytes_per_core": "HBM of a core",
    "hbm_bytes_per_step": "HBM read in a step",
    "mfu": "share of the peak (MFU)",
    "mbu": "share of the HBM rate (MBU)",
}
"""Quantities of an estimate in the order in which they are shown, with their titles."""
TRAINING_QUANTITIES = {
    "sequences_per_s": "sequences per second",
    "tokens_per_s": "tokens per second",
    "step_ms": "time of a step",
    "usd_per_1m_tokens": "price per million tokens",
    "mfu": "share of the peak (MFU)",
}
"""The same of an estimate of training."""


def titles_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the titles of the quantities of an estimate."""
    return {name: title.format(priced=priced(data)) for name, title in QUANTITIES.items()}


def priced(data: Mapping[str, Any]) -> str:
    """Return the unit of a price per million: requests, if an estimate has no output tokens."""
    return "requests" if data["tokens_per_s"] is None else "output tokens"


def shown(name: str, value: float) -> str:
    """Format a quantity for a person; its name says its unit."""
    if "bytes" in name:
        return size(value)
    if name.startswith("usd"):
        return f"${number(value)}"
    if name in ("mfu", "mbu", "utilization"):
        return f"{number(100 * value, digits=3)} %"
    return time_span(value / 1e3) if name.endswith("_ms") else number(value)


def interval(name: str, quantity: Mapping[str, Any]) -> str:
    """Return the 80 % interval of a quantity."""
    return f"{shown(name, quantity['low'])} to {shown(name, quantity['high'])}"
