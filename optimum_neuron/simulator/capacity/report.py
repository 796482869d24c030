"""Numbers of a replay under the names of vLLM's benchmark: percentiles, throughput, goodput, and cost.

numbers = report_of(served, slo=parse_slo("ttft=500"), usd_per_h=0.76)
numbers["p99_ttft_ms"], numbers["usd_per_1m_output_tokens"]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .replay import Replay
from .slo import SLO

TIMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}
"""Times of requests by vLLM's names: of the first token, of each further one on average, of each, and of the last."""
PERCENTILES = {"median": 50, "p90": 90, "p99": 99}


def report_of(served: Replay, *, slo: SLO | None = None, usd_per_h: float | None = None) -> dict[str, Any]:
    """Return the numbers of a replay.

    Requests that a server would reject count as requests that miss the objective.
    """
    num_input = sum(prompt for prompt, _ in served.lengths)
    num_output = sum(answer for _, answer in served.lengths)
    duration_s = served.end_s
    numbers: dict[str, Any] = {
        "completed": len(served.times),
        "rejected": {"too_long": served.num_too_long, "queue_full": served.num_refused},
        "duration": duration_s,
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": _rate(len(served.times), duration_s),
        "output_throughput": _rate(num_output, duration_s),
        "total_token_throughput": _rate(num_input + num_output, duration_s),
        "busy_share": served.busy_share,
    }
    for name, values_s in _times(served).items():
        numbers |= _summary(name, values_s)
    if slo is not None:
        num_kept = sum(map(slo.is_kept_by, served.times))
        numbers["request_goodput"] = _rate(num_kept, duration_s)
        numbers["slo_attainment"] = num_kept / served.num_requests
        numbers["meets_slo"] = numbers["slo_attainment"] >= slo.attainment
    for name, num_tokens in {"output_tokens": num_output, "tokens": num_input + num_output}.items():
        usd = None if usd_per_h is None or not num_tokens else usd_per_h / 3600 * duration_s / num_tokens * 1e6
        numbers[f"usd_per_1m_{name}"] = usd
    return numbers


def _times(served: Replay) -> dict[str, Any]:
    fields = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "latency_s"}
    values = {
        name: [value for one in served.times if (value := getattr(one, field)) is not None]
        for name, field in fields.items()
    }
    return {"ttft": values["ttft"], "tpot": values["tpot"], "itl": served.gaps_s, "e2el": values["e2el"]}


def _summary(name: str, values_s: Any) -> dict[str, Any]:
    """Return mean and percentiles in milliseconds; None where no request has such a time."""
    values_ms = 1e3 * np.asarray(values_s, dtype=float)
    if not len(values_ms):
        return {f"{part}_{name}_ms": None for part in ("mean", *PERCENTILES)}
    found = np.percentile(values_ms, list(PERCENTILES.values()))
    return {f"mean_{name}_ms": float(values_ms.mean())} | {
        f"{part}_{name}_ms": float(value) for part, value in zip(PERCENTILES, found, strict=True)
    }


def _rate(count: int, duration_s: float) -> float:
    return count / duration_s if duration_s else 0.0
