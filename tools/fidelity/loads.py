"""Published loads of servers: the clients of guidellm 0.1.0, as optimum-neuron runs it, and what it reports.

What it does is read in its source (github.com/neuralmagic/guidellm, 0.1.0), and in benchmark/vllm/performance.sh of
optimum-neuron. It runs one client for two minutes, then all of them. They send five times as many requests as the first
run had answers (executor/profile_generator.py), so with many clients all requests arrive at once. A request that is not
answered after two minutes does not count. Where `max_concurrency` is not published, it is the smallest that gives the
published rate times the published latency. The benchmark asks for 250 tokens; some answers end before.

    load = load_of(row, timed)
    seen(load(constants), "ttft_ms")
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from optimum_neuron.simulator import Constants, Served, host_cost, on_copies, served_rows, summarize

if TYPE_CHECKING:
    from cases import Row, Timed

COMPILED_TOKENS_SINCE = "2026-03-03"
"""Day from which a step of optimum-neuron's servers admits as many tokens as the compiled length
(github.com/huggingface/optimum-neuron, commit 5f8e901d); before, the 2,048 of vLLM: one prompt of 1,500."""
LONGEST_ANSWER = 250
"""Tokens that the benchmark asks for."""
BENCHMARK_S = 120.0
"""Seconds of a run (guidellm/main.py, --max-seconds)."""

Load = Callable[[Constants], Served]


def load_of(row: Row, timed: Timed) -> Load:
    """Return the simulation of a row's load, whose plan and machine are `timed`."""
    plan, stack = timed.plan, timed.plan.stack
    clients, requests, mean = row.concurrency, row.requests, row.output_length
    assert clients and requests and mean
    tokens = plan.batched_tokens if row.date >= COMPILED_TOKENS_SINCE else stack.batched_tokens
    answer = functools.partial(_answer, chance_of_end=_chance_of_end(mean))

    def load(constants: Constants) -> Served:
        cost = host_cost(constants, stack, family=timed.family, basis="")
        pool = served_rows(plan, timed.times(constants), cost, batched_tokens=tokens)
        limits = {"num_requests": requests, "seconds": BENCHMARK_S}
        return on_copies(pool, clients, row.copies or 1, answer=answer, **limits)

    return load


def seen(served: Served, metric: str) -> float:
    """Return a mean as guidellm reports it: that of tokens is of all gaps between them (guidellm/core/result.py)."""
    if metric == "tokens_per_s":
        return served.tokens_per_s
    if metric != "tpot_ms":
        return summarize(served.times)[metric.replace("_ms", "_mean_ms")]
    gaps_s = sum((one.end_s or 0.0) - (one.first_token_s or 0.0) for one in served.times)
    return 1e3 * gaps_s / sum(one.num_tokens - 1 for one in served.times)


def _chance_of_end(mean: int) -> float:
    """Chance that an answer ends at a token, from the mean length of answers of at most `LONGEST_ANSWER` tokens."""
    low, high = 1e-9, 1.0
    for _ in range(60):
        chance = math.sqrt(low * high)
        is_longer = -math.expm1(LONGEST_ANSWER * math.log1p(-chance)) / chance > mean
        low, high = (chance, high) if is_longer else (low, chance)
    return low


def _answer(chance: random.Random, *, chance_of_end: float) -> int:
    """Draw the length of an answer."""
    return int(min(math.log(1 - chance.random()) / math.log1p(-chance_of_end) + 1, LONGEST_ANSWER))
