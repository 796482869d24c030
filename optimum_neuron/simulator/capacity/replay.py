"""Serves a trace with simulated engines, one for each replica, request by request.

    served = replay_trace(pool, trace, num_replicas=2)
    served.times[0].ttft_s

A request goes to the replica with the fewest requests, as load balancers do. A replica has the scheduler and the clock
of `batching.Engine`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from ...batching import Request, SimulatedTimes
from ..continuous import ServedPool, SimulatedEngine
from .trace import Trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay:
    """The times of a served trace, all simulated."""

    times: Sequence[SimulatedTimes]
    """Of the requests that were answered."""
    lengths: Sequence[tuple[int, int]]
    """Tokens of their prompts and answers."""
    gaps_s: np.ndarray
    """Times between two tokens of an answer, of all answers."""
    end_s: float
    """Last token, after the first arrival."""
    busy_share: float
    """Share of that time that the replicas work."""
    num_too_long: int = 0
    """Requests that are longer than the compiled length; a server rejects them with status 400."""
    num_refused: int = 0
    """Requests that found a full queue; a server rejects them with status 429."""

    @property
    def num_requests(self) -> int:
        """All requests of the trace."""
        return len(self.times) + self.num_too_long + self.num_refused


def replay_trace(
    pool: ServedPool,
    trace: Trace,
    *,
    num_replicas: int = 1,
    max_queue_size: int | None = None,
    slower: float = 1.0,
) -> Replay:
    """Serve a trace.

    Args:
        max_queue_size: requests that may wait at a replica; more are rejected. None: any number.
        slower: factor of all device and host times, for the ends of an interval.
    """
    engines = [SimulatedEngine(pool) for _ in range(num_replicas)]
    longest, num_too_long, num_refused = _longest(pool), 0, 0
    served: list[Request] = []
    for number, one in enumerate(trace.requests):
        if one.num_tokens > longest:
            num_too_long += 1
            continue
        # Engines run at the speed of the estimate: at another one, arrivals are as much closer together.
        now_s = one.arrival_s / slower
        for engine in engines:
            _advance(engine, now_s)
        engine = min(engines, key=lambda each: each.num_requests)
        if max_queue_size is not None and len(engine.scheduler.waiting) >= max_queue_size:
            num_refused += 1
            continue
        request = Request(
            request_id=str(number),
            prompt=[0] * one.num_prompt,
            max_new_tokens=one.num_answer,
            simulated=SimulatedTimes(arrival_s=now_s),
        )
        engine.add(request)
        served.append(request)
    for engine in engines:
        _advance(engine, float("inf"))
    end_s = max((request.simulated.end_s or 0.0 for request in served), default=0.0)
    busy_s = sum(engine.clock.busy_s for engine in engines)
    return Replay(
        times=[_slowed(request.simulated, slower) for request in served],
        lengths=[(len(request.prompt), request.max_new_tokens) for request in served],
        gaps_s=slower * np.concatenate([np.asarray(engine.gaps_s) for engine in engines]),
        end_s=slower * end_s,
        busy_share=busy_s / (num_replicas * end_s) if end_s else 0.0,
        num_too_long=num_too_long,
        num_refused=num_refused,
    )


def _longest(pool: ServedPool) -> int:
    """Tokens of a request that its graphs and its blocks hold."""
    return min(max(pool.step_s), (pool.num_blocks - 1) * pool.block_size)


def _advance(engine: SimulatedEngine, until_s: float) -> None:
    """Let a replica work until a request arrives; a step that has begun ends later."""
    while engine.has_work and engine.clock.now_s < until_s:
        engine.step(until_s)
    if not engine.has_work and until_s != float("inf"):
        engine.clock.wait_until(until_s)


def _slowed(times: SimulatedTimes, factor: float) -> SimulatedTimes:
    def scaled(value: float | None) -> float | None:
        return None if value is None else factor * value

    return SimulatedTimes(
        arrival_s=scaled(times.arrival_s),
        start_s=scaled(times.start_s),
        first_token_s=scaled(times.first_token_s),
        end_s=scaled(times.end_s),
        num_tokens=times.num_tokens,
    )
