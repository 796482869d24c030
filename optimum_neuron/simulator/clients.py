"""Clients of a server that each send their next request when the last one is answered, as benchmarks of servers do.

`vllm bench serve --max-concurrency 32` and guidellm measure so. The load follows from the server: a slower one gets
fewer requests, and no queue grows without end. Each replica has an equal part of the clients.

    estimate = with_clients(estimate, 32)
    estimate.clients.tokens_per_s
"""

from __future__ import annotations

import dataclasses
import itertools
import random

from ..batching import Request, SimulatedTimes
from ..errors import ConfigError
from .continuous import ServedPool, summarize
from .fitted import Constants
from .result import SERVED, ClientLoad, Estimate, Quantity
from .rows import ServedRows, is_answered

ROUNDS, FEWEST_ROUNDS, SECONDS = 8, 2, 120.0
"""Requests of each client until the times are read, or those of two minutes, as long as guidellm 0.1 measures."""
SPREAD = 0.018
"""Standard deviation of the lengths of answers, as a share: that of guidellm where optimum-neuron measures servers
(benchmark/vllm/performance.sh: 250 tokens with a variance of 20)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Served:
    """What the clients of one replica saw."""

    times: list[SimulatedTimes]
    """Of the requests that were answered."""
    tokens_per_s: float


def serve_clients(pool: ServedPool | ServedRows, num_clients: int, *, seed: int = 0) -> Served:
    """Simulate a replica and its clients, who all begin at once; the same ones for the same seed."""
    chance, numbers, engine = random.Random(seed), itertools.count(), pool.engine()
    sent: list[Request] = []
    answered: list[SimulatedTimes] = []

    def send() -> None:
        length = max(round(chance.gauss(pool.num_answer, SPREAD * pool.num_answer)), 1)
        request = Request(
            request_id=str(next(numbers)),
            prompt=[0] * pool.num_prompt,
            max_new_tokens=min(length, pool.longest_answer or length),
            simulated=SimulatedTimes(arrival_s=engine.clock.now_s),
        )
        sent.append(request)
        engine.add(request)

    for _ in range(num_clients):
        send()
    num_tokens = 0
    while len(answered) < num_clients * (FEWEST_ROUNDS if engine.clock.now_s > SECONDS else ROUNDS):
        engine.step()
        ended = [request for request in sent if is_answered(request)]
        sent = [request for request in sent if not is_answered(request)]
        answered += [request.simulated for request in ended]
        num_tokens += sum(request.max_new_tokens for request in ended)
        for _ in ended:
            send()
    num_tokens += sum(request.simulated.num_tokens for request in sent)
    return Served(times=answered, tokens_per_s=num_tokens / engine.clock.now_s)


def with_clients(estimate: Estimate, num_clients: int, constants: Constants) -> Estimate:
    """Add what so many clients see to an estimate of a decoder.

    Raises:
        ConfigError: If it has no server that takes requests one by one.
    """
    pool = estimate.served_pool or estimate.served_rows
    if pool is None:
        message = f"num_clients={num_clients} has no effect: {estimate.model} is served in whole batches."
        hint = "Estimate a decoder with stack='vllm', or one that was exported with continuous batching."
        raise ConfigError(message, hint=hint, option="num_clients", value=num_clients, options=["num_clients"])
    copies = min(estimate.num_copies.value, num_clients)
    served = serve_clients(pool, -(-num_clients // copies))
    limit = estimate.quantities["latency_ms"].limited_by
    bands = {name: constants.bands[f"served.{name}"] for name in ("ttft_ms", "tpot_ms", "tokens_per_s")}
    rate = bands["tokens_per_s"]
    scale = {f"{name}_ms": constants.scale.get(f"served.{name}_ms", 1.0) for name in ("ttft", "tpot")}
    faster = constants.scale.get("served.tokens_per_s", 1.0)
    tokens = Quantity.of(faster * copies * served.tokens_per_s, rate, limit)

    def quantity(name: str, value: float) -> Quantity:
        name = f"{name.partition('_')[0]}_ms"
        if name not in bands:
            return Quantity.inverse(value / faster, rate, limit)
        return Quantity.of(scale[name] * value, bands[name], limit)

    note = f"{num_clients} clients, an equal part of them at each of {copies} replicas, {pool.num_rows} requests in a "
    note += f"step; {pool.policy}; up to {ROUNDS} requests of each client in two minutes, answers of {pool.num_answer} "
    note += f"tokens, give or take {SPREAD:.1%}; {pool.cost.basis}"
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
