"""Clients of a server that each send their next request when the last one is answered, as benchmarks of servers do.

`vllm bench serve --max-concurrency 32` and guidellm measure so. The load follows from the server: a slower one gets
fewer requests, and no queue grows without end. Each replica has an equal part of the clients. Benchmarks end: with few
requests for each client, most of them arrive at once, and the last ones find an emptier server.

    estimate = with_clients(estimate, 32, num_requests=100)
    estimate.clients.tokens_per_s
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from typing import Any

from ..batching import Request, SimulatedTimes
from ..errors import ConfigError
from .continuous import ServedPool, summarize
from .fitted import Constants
from .result import SERVED, ClientLoad, Estimate, Quantity
from .rows import ServedRows, is_answered

ROUNDS, FEWEST_ROUNDS, SECONDS = 8, 2, 120.0
"""Requests of each client until the times are read, or those of two minutes, as long as guidellm 0.1 measures, where
their number is not given."""
SPREAD = 0.018
"""Standard deviation of the lengths of answers, as a share: that of guidellm where optimum-neuron measures servers
(benchmark/vllm/performance.sh: 250 tokens with a variance of 20)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """What the clients of one replica saw."""

    times: list[SimulatedTimes]
    """Of the requests that were answered."""
    tokens_per_s: float


def serve_clients(
    pool: ServedPool | ServedRows,
    num_clients: int,
    *,
    num_requests: int | None = None,
    seconds: float = math.inf,
    answer: Callable[[random.Random], int] | None = None,
    seed: int = 0,
) -> Served:
    """Simulate a replica and its clients, who all begin at once; the same ones for the same seed.

    Args:
        pool: server of the replica.
        num_clients: requests at a time, at most.
        num_requests: requests of all clients together, until the last answer ends; None for some rounds.
        seconds: end of a run with `num_requests`; requests that are not answered then do not count.
        answer: draws the tokens of an answer; None for those of the pool, give or take `SPREAD`.
        seed: of the lengths of answers.
    """
    chance, mean = random.Random(seed), pool.num_answer
    drawn = answer or (lambda chance: round(chance.gauss(mean, SPREAD * mean)))
    load = _Load(pool, num_requests, lambda: drawn(chance))
    for _ in range(num_clients):
        load.send()
    if num_requests is not None:
        while load.sent and load.now_s < seconds:
            load.step()
        end_s = max((times.end_s or 0.0 for times in load.answered), default=math.inf)
        return Served(times=load.answered, tokens_per_s=sum(times.num_tokens for times in load.answered) / end_s)
    while len(load.answered) < num_clients * (FEWEST_ROUNDS if load.now_s > SECONDS else ROUNDS):
        load.step()
    times = [*load.answered, *(request.simulated for request in load.sent)]
    return Served(times=load.answered, tokens_per_s=sum(one.num_tokens for one in times) / load.now_s)


def on_copies(
    pool: ServedPool | ServedRows, num_clients: int, copies: int, *, num_requests: int | None = None, **options: Any
) -> Served:
    """Simulate the fullest of several replicas, which have equal parts of the clients and ends last.

    Options are those of `serve_clients`. Times are those of that replica, and tokens those of all.
    """
    own = None if num_requests is None else -(-num_requests // copies)
    served = serve_clients(pool, -(-num_clients // copies), num_requests=own, **options)
    full = copies if num_requests is None or own is None else num_requests / own
    return dataclasses.replace(served, tokens_per_s=full * served.tokens_per_s)


class _Load:
    """Requests of the clients of a replica."""

    def __init__(self, pool: ServedPool | ServedRows, num_requests: int | None, answer: Callable[[], int]) -> None:
        self._pool, self._answer, self._engine = pool, answer, pool.engine()
        self._numbers = iter(itertools.count() if num_requests is None else range(num_requests))
        self.sent: list[Request] = []
        """Requests that are not answered."""
        self.answered: list[SimulatedTimes] = []

    @property
    def now_s(self) -> float:
        return self._engine.clock.now_s

    def send(self) -> None:
        """Send a request, if there is another one."""
        number, longest = next(self._numbers, None), self._pool.longest_answer
        if number is None:
            return
        length = max(self._answer(), 1)
        request = Request(
            request_id=str(number),
            prompt=[0] * self._pool.num_prompt,
            max_new_tokens=length if longest is None else min(length, longest),
            simulated=SimulatedTimes(arrival_s=self.now_s),
        )
        self.sent.append(request)
        self._engine.add(request)

    def step(self) -> None:
        """Do a step of the server, and send a request for each answer."""
        self._engine.step()
        ended = [request for request in self.sent if is_answered(request)]
        self.sent = [request for request in self.sent if not is_answered(request)]
        self.answered += [request.simulated for request in ended]
        for _ in ended:
            self.send()


def with_clients(
    estimate: Estimate, num_clients: int, constants: Constants, *, num_requests: int | None = None
) -> Estimate:
    """Add what so many clients see to an estimate of a decoder, of a number of requests or of some rounds.

    Raises:
        ConfigError: If it has no server that takes requests one by one.
    """
    pool = estimate.served_pool or estimate.served_rows
    if pool is None:
        message = f"num_clients={num_clients} has no effect: {estimate.model} is served in whole batches."
        hint = "Estimate a decoder with stack='vllm', or one that was exported with continuous batching."
        raise ConfigError(message, hint=hint, option="num_clients", value=num_clients, options=["num_clients"])
    copies = min(estimate.num_copies.value, num_clients, num_requests or num_clients)
    served = on_copies(pool, num_clients, copies, num_requests=num_requests)
    limit = estimate.quantities["latency_ms"].limited_by
    bands = {name: constants.bands[f"served.{name}"] for name in ("ttft_ms", "tpot_ms", "tokens_per_s")}
    rate = bands["tokens_per_s"]
    scale = {f"{name}_ms": constants.scale.get(f"served.{name}_ms", 1.0) for name in ("ttft", "tpot")}
    faster = constants.scale.get("served.tokens_per_s", 1.0)
    tokens = Quantity.of(faster * served.tokens_per_s, rate, limit)

    def quantity(name: str, value: float) -> Quantity:
        name = f"{name.partition('_')[0]}_ms"
        if name not in bands:
            return Quantity.inverse(value / faster, rate, limit)
        return Quantity.of(scale[name] * value, bands[name], limit)

    note = f"{num_clients} clients, an equal part of them at each of {copies} replicas, {pool.num_rows} requests in a "
    rounds = f"up to {ROUNDS} requests of each client in two minutes"
    note += f"step; {pool.policy}; {rounds if num_requests is None else f'{num_requests} requests'}, answers of "
    note += f"{pool.num_answer} tokens, give or take {SPREAD:.1%}; {pool.cost.basis}"
    price = None if estimate.usd_per_h is None else estimate.usd_per_h / 3600 / tokens.value * 1e6
    return dataclasses.replace(
        estimate,
        clients=ClientLoad(
            num_clients=num_clients,
            requests_per_s=tokens.scaled(1 / pool.num_answer),
            tokens_per_s=tokens,
            usd_per_1m=None if price is None else Quantity.inverse(price, rate, limit),
            served={name: quantity(name, value) for name, value in summarize(served.times).items() if name in SERVED},
            note=note,
        ),
    )
