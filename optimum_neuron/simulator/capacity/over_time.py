"""A replay over time: what happens in equal spans of simulated time, for a plot.

over_time(served)[0]["arrivals_per_s"]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .replay import Replay

NUM_SPANS = 60


def over_time(served: Replay, *, num_spans: int = NUM_SPANS) -> list[dict[str, Any]]:
    """Divide a replay into spans of equal length.

    Returns:
        For each span: `begin_s` and `end_s`; arrivals, answers, and output tokens for each second; requests that run
        and that wait, on average over the span; median and 99th percentile of the time to first token in ms of the
        requests that arrive in it, None without one. The tokens of an answer after the first are spread evenly from
        the first to the last. Empty if no request was answered.
    """
    if not served.times or not served.end_s:
        return []
    names = ("arrival_s", "start_s", "first_token_s", "end_s")
    arrival, start, first, end = (np.array([getattr(one, name) or 0.0 for one in served.times]) for name in names)
    num_tokens = np.array([one.num_tokens for one in served.times])
    edges = np.linspace(0.0, served.end_s, num_spans + 1)
    length_s = edges[1]
    generating = np.maximum(end - first, 1e-12)
    rows = []
    for number, (begin, until) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        last = number == num_spans - 1

        def inside(times: Any, begin: float = begin, until: float = until, last: bool = last) -> Any:
            return (times >= begin) & ((times < until) | last)

        def shared(since: Any, to: Any, begin: float = begin, until: float = until) -> Any:
            return np.maximum(np.minimum(to, until) - np.maximum(since, begin), 0.0)

        arrived = inside(arrival)
        ttft_ms = 1e3 * (first - arrival)[arrived]
        later = ((num_tokens - 1) * shared(first, end) / generating).sum()
        lone = (num_tokens - 1)[inside(end) & (end - first <= 0)].sum()
        rows.append(
            {
                "begin_s": float(begin),
                "end_s": float(until),
                "arrivals_per_s": float(arrived.sum() / length_s),
                "answers_per_s": float(inside(end).sum() / length_s),
                "tokens_per_s": float((inside(first).sum() + later + lone) / length_s),
                "running": float(shared(start, end).sum() / length_s),
                "waiting": float(shared(arrival, start).sum() / length_s),
                "median_ttft_ms": float(np.median(ttft_ms)) if len(ttft_ms) else None,
                "p99_ttft_ms": float(np.percentile(ttft_ms, 99)) if len(ttft_ms) else None,
            }
        )
    return rows
