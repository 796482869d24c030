"""Queueing: the waiting time of requests that arrive at random.

Requests arrive independently of each other (a Poisson process) and are served in order; a server takes the waiting
requests, up to its batch, for a constant time. No formula covers all of that, so the queue is simulated, always with
the same random numbers. It agrees with the known formulas: Pollaczek and Khinchine's for one server, Allen and
Cunneen's for several (Allen, Probability, Statistics and Queueing Theory, 2nd edition, 1990, sections 5.3.1 and 5.3.4).

    estimate = under_load(estimate, 3.0, room=2)
    estimate.load.wait_p95_ms
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .continuous import ServedPool, capacity_per_s, poisson_arrivals, serve_load
from .result import SERVED, Estimate, Load, Quantity
from .rows import ServedRows

NUM_REQUESTS = 50_000
WARM_UP = 0.1
"""Share of the first requests, which find an emptier queue than later ones and are not counted."""
ENDS = ("value", "low", "high")
"""An estimate and the ends of its interval."""
CROWDED = 0.95
"""Utilization from which waits depend on how long the load lasts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waits:
    """Waiting times of requests until their service begins."""

    mean_s: float
    p95_s: float
    """Longer than this one in twenty."""


def simulate_waits(
    *,
    requests_per_s: float,
    service_s: float,
    num_servers: int,
    batch_size: int = 1,
    num_requests: int = NUM_REQUESTS,
) -> Waits:
    """Simulate a queue, arrival by arrival.

    Args:
        service_s: time that a server takes for a batch, whether it is full or not.
        batch_size: requests that a server takes at once, if as many wait.

    Example:
        ```python
        from optimum_neuron.simulator.queueing import simulate_waits

        waits = simulate_waits(requests_per_s=50, service_s=0.01, num_servers=1)
        assert 0.0045 < waits.mean_s < 0.0055  # 0.5 x 0.01 / (2 x (1 - 0.5)), Pollaczek and Khinchine
        ```
    """
    arrivals = poisson_arrivals(requests_per_s, num_requests)
    free_at = [0.0] * num_servers
    waits: list[float] = []
    while len(waits) < num_requests:
        first = len(waits)
        start = max(heapq.heappop(free_at), arrivals[first])
        taken = first
        while taken < min(first + batch_size, num_requests) and arrivals[taken] <= start:
            waits.append(start - arrivals[taken])
            taken += 1
        heapq.heappush(free_at, start + service_s)
    counted = sorted(waits[int(WARM_UP * num_requests) :])
    return Waits(mean_s=sum(counted) / len(counted), p95_s=counted[int(0.95 * len(counted))])


def under_load(estimate: Estimate, requests_per_s: float, *, room: int) -> Estimate:
    """Add the effects of random arrivals to an estimate.

    Where a decoder's server takes requests one by one, it is simulated; each replica has an equal part of them. Another
    decoder serves each request in a separate row, and the time of one is that with every row in use; other models take
    the waiting requests, up to their batch, in one run.
    """
    service = estimate.quantities["latency_ms"]
    copies = estimate.num_copies.value
    machine: dict[str, Any] = {
        "num_copies": copies,
        "room": room,
        "num_instances": estimate.num_instances,
        "price_usd_per_h": estimate.usd_per_h,
    }
    if (pool := estimate.served_pool or estimate.served_rows) is not None:
        load = _load_of_server(pool, requests_per_s, service, **machine)
        return dataclasses.replace(estimate, load=load)
    rows = max(round(estimate.quantities["throughput_per_s"].value * service.value * 1e-3 / copies), 1)
    generates = "tpot_ms" in estimate.quantities
    load = load_on(
        requests_per_s=requests_per_s,
        service_ms=service,
        num_servers=copies * rows if generates else copies,
        batch_size=1 if generates else rows,
        **machine,
    )
    return dataclasses.replace(estimate, load=load)


def _load_of_server(pool: ServedPool | ServedRows, requests_per_s: float, service_ms: Quantity, **machine: Any) -> Load:
    """Put a load on replicas that take requests one by one; each end of the interval is simulated by itself."""
    _require_rate(requests_per_s)
    copies = machine["num_copies"]
    slower = {end: getattr(service_ms, end) / service_ms.value for end in ENDS}
    capacity = copies * capacity_per_s(pool)
    busy = {end: requests_per_s * factor / capacity for end, factor in slower.items()}
    served = {
        end: serve_load(pool, requests_per_s / copies, slower=factor)
        if busy[end] < 1
        else dict.fromkeys(("wait_mean_ms", "wait_p95_ms", *SERVED), math.inf)
        for end, factor in slower.items()
    }
    note = f"Poisson arrivals, an equal part of them at each replica, {pool.num_rows} requests in a step; simulated: "
    note += f"{pool.policy}; "
    limit = service_ms.limited_by
    return _load(requests_per_s, busy, served, note=note + pool.cost.basis, limited_by=limit, **machine)


def load_on(
    *,
    requests_per_s: float,
    service_ms: Quantity,
    num_servers: int,
    batch_size: int,
    num_copies: int,
    room: int,
    num_instances: int = 1,
    price_usd_per_h: float | None,
) -> Load:
    """Put a load on an instance; `room` is the number of replicas that it holds.

    Args:
        service_ms: time of a batch, with its interval.
        num_servers: Parallel servers: replicas, or rows of all replicas if each row is one request.
        batch_size: requests that a server takes at once.
        room: replicas that an instance holds, or several that share each replica.
    """
    _require_rate(requests_per_s)
    ends = {end: getattr(service_ms, end) * 1e-3 for end in ENDS}
    busy = {end: requests_per_s * seconds / (num_servers * batch_size) for end, seconds in ends.items()}
    waits = {
        end: simulate_waits(
            requests_per_s=requests_per_s, service_s=ends[end], num_servers=num_servers, batch_size=batch_size
        )
        if share < 1
        else Waits(mean_s=math.inf, p95_s=math.inf)
        for end, share in busy.items()
    }
    return _load(
        requests_per_s,
        busy,
        {end: {"wait_mean_ms": 1e3 * wait.mean_s, "wait_p95_ms": 1e3 * wait.p95_s} for end, wait in waits.items()},
        note="Poisson arrivals, served in order, each for the same time; simulated request by request",
        limited_by=service_ms.limited_by,
        num_copies=num_copies,
        room=room,
        num_instances=num_instances,
        price_usd_per_h=price_usd_per_h,
    )


def _load(
    requests_per_s: float,
    busy: Mapping[str, float],
    times_ms: Mapping[str, Mapping[str, float]],
    *,
    note: str,
    limited_by: str,
    num_copies: int,
    room: int,
    num_instances: int,
    price_usd_per_h: float | None,
) -> Load:
    """Put a report together: `busy` and `times_ms` by end of the interval, times also by name."""
    if busy["value"] >= 1:
        note += "; the instance cannot keep up: the queue grows as long as the load lasts"
    elif busy["value"] >= CROWDED:
        note += f"; from {CROWDED:.0%} on, waits depend on how long the load lasts"
    copies = math.floor(busy["high"] * num_copies) + 1
    groups = math.ceil(copies / room)
    times = {
        name: Quantity(**{end: times_ms[end][name] for end in ENDS}, limited_by=limited_by)
        for name in times_ms["value"]
    }
    return Load(
        requests_per_s=requests_per_s,
        utilization=Quantity(**busy, limited_by=limited_by),
        wait_mean_ms=times["wait_mean_ms"],
        wait_p95_ms=times["wait_p95_ms"],
        served={name: times[name] for name in SERVED if name in times},
        num_copies=copies,
        num_instances=groups * num_instances,
        usd_per_h=None if price_usd_per_h is None else groups * price_usd_per_h,
        note=note,
    )


def _require_rate(requests_per_s: float) -> None:
    if not 0 < requests_per_s < 1e9:
        message, hint = f"requests_per_s={requests_per_s} is not a rate of arrivals.", "Pass a number such as 2.5."
        raise ConfigError(message, hint=hint, option="requests_per_s", value=requests_per_s)
