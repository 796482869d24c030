"""Continuous batching without a device: the scheduler of `batching` plans, and every graph takes its simulated time.

    times = simulate_requests(pool, arrivals_s=[0.0, 0.1])

`batching.Engine` has the same scheduler and the same clock, so a load takes the same simulated time there.
"""

from __future__ import annotations

import array
import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..batching import BlockPool, Clock, Plan, Request, Scheduler, SimulatedTimes, chain_hashes, serve_trace
from ..runtime import ServingCost
from .rows import ServedRows

if TYPE_CHECKING:
    from ..compiler import Program

NUM_TOKENS = 400_000
"""Tokens and chunks that a load is simulated for: longer requests mean fewer of them."""
FEWEST_REQUESTS, MOST_REQUESTS = 100, 10_000
WARM_UP = 0.1
"""Share of the first requests, which find an emptier engine than later ones and are not counted."""
FILLS = 5
"""Times that a full batch is served to find the capacity of an engine."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedPool:
    """What the times of a served load depend on."""

    num_rows: int
    """Requests of a step."""
    num_blocks: int
    block_size: int
    block_bytes: int
    chunk_s: Mapping[int, Mapping[int, float]] = dataclasses.field(hash=False)
    """Device time of a chunk, by its tokens and by the slots that it attends to."""
    step_s: Mapping[int, float] = dataclasses.field(hash=False)
    """Device time of a decode step, by the slots that it attends to."""
    cost: ServingCost
    """Time around the graphs."""
    num_prompt: int
    """Tokens of a prompt of the estimated load."""
    num_answer: int
    num_cached: int = 0
    """Tokens of a prompt that are in the prefix cache before the first request arrives, in whole chunks."""

    @property
    def chunk_size(self) -> int:
        """Tokens of prompts that are read between two steps."""
        return max(self.chunk_s)

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest answer that the compiled length has room for."""
        return max(self.step_s) - self.num_prompt + 1  # the last token is in no cache

    @property
    def policy(self) -> str:
        """How requests are scheduled, in words."""
        return f"the scheduler of continuous batching, prompts in chunks of {self.chunk_size}, nothing shared"

    def engine(self) -> SimulatedEngine:
        """Return a server without requests."""
        return SimulatedEngine(self)

    def serve(self, requests: Sequence[Request]) -> None:
        """Serve requests that arrive in this order, at the times that they have."""
        serve_trace(self.engine(), requests)


def served_pool(
    program: Program,
    memory: Mapping[str, int],
    *,
    call_s: Callable[[str], float],
    cost: ServingCost,
    num_prompt: int,
    num_answer: int,
    num_cached: int,
) -> ServedPool:
    """Read the sizes of a program with a pool of blocks; `call_s` is the device time of a call of a graph."""
    decode = program.by_size("decode")
    num_rows, width = program.graphs[decode[max(decode)]].inputs["block_table"].shape
    # A decoder without keys counts its tokens in blocks all the same, and has enough of them for all rows.
    without_keys = (num_rows * width + 1, -(-max(decode) // width))
    pools = (spec.shape for name, spec in program.states.items() if name.startswith("key_cache"))
    keys = next(pools, without_keys)
    return ServedPool(
        num_rows=num_rows,
        num_blocks=keys[0],
        block_size=keys[-1],
        block_bytes=memory["kv_cache"] // keys[0],
        chunk_s=chunk_times(program, call_s),
        step_s={slots: call_s(graph) for slots, graph in decode.items()},
        cost=cost,
        num_prompt=num_prompt,
        num_answer=num_answer,
        num_cached=num_cached,
    )


def chunk_times(program: Program, call_s: Callable[[str], float]) -> dict[int, dict[int, float]]:
    """Return the device time of each chunk, by its tokens and by the slots that it attends to."""
    chunks = program.chunks("prefill")
    return {length: {slots: call_s(graph) for slots, graph in graphs.items()} for length, graphs in chunks.items()}


class SimulatedEngine:
    """Serves requests as `batching.Engine` does, and runs no graph: it knows how long each takes."""

    def __init__(self, pool: ServedPool) -> None:
        self._pool = pool
        blocks = BlockPool(pool.num_blocks, pool.block_size)
        self._prefix = _keep_prefix(blocks, pool.num_cached)
        self.scheduler = Scheduler(blocks, num_rows=pool.num_rows, chunk_sizes=sorted(pool.chunk_s))
        self.clock = Clock(pool.cost, block_bytes=pool.block_bytes)
        self.gaps_s = array.array("d")
        """Times between two tokens of an answer, of all answers."""

    @property
    def num_requests(self) -> int:
        """Requests that wait or run."""
        scheduler = self.scheduler
        return len(scheduler.waiting) + len(scheduler.preempted) + len(scheduler.running)

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return self.scheduler.has_work

    def add(self, request: Request) -> None:
        """Let a request wait for its turn; its prompt begins with the prefix that is kept."""
        request.hashes = self._prefix
        self.scheduler.add(request)

    def step(self, until_s: float = -math.inf) -> None:
        """Do one step, and those behind it that are the same and begin before a time."""
        plan = self.scheduler.plan()
        self.clock.copy(plan)
        for chunk in plan.chunks:
            chunk.request.simulated.start(self.clock.now_s)
            graphs_s = self._pool.chunk_s[_smallest(self._pool.chunk_s, chunk.num_tokens)]
            self.clock.read(graphs_s[_smallest(graphs_s, chunk.start + chunk.num_tokens)])
            self.scheduler.read(chunk)
            if chunk.is_last:
                self._add_tokens([chunk.request])
        if plan.steps:
            # Every row goes through the smallest graph that holds it.
            graphs = {_smallest(self._pool.step_s, request.num_computed + 1) for request in plan.steps}
            device_s = sum(self._pool.step_s[slots] for slots in graphs)
            self.clock.step(device_s, num_rows=len(plan.steps))
            for request in plan.steps:
                request.num_computed += 1
            self._add_tokens(plan.steps)
            if self.clock.now_s < until_s and plan == Plan(steps=plan.steps):
                self._repeat(plan.steps, device_s, until_s)

    def _repeat(self, requests: Sequence[Request], device_s: float, until_s: float) -> None:
        """Do the same step again, as long as no answer ends and no request needs a block or a larger graph.

        The scheduler would plan the same: neither its rows nor its free blocks change, and nobody arrives.
        """
        num_steps = min(map(self._num_alike, requests))
        times: list[float] = []
        while len(times) < num_steps and self.clock.now_s < until_s:
            before_s = self.clock.now_s
            self.clock.step(device_s, num_rows=len(requests))
            times.append(self.clock.now_s - before_s)
        for gap_s in times:
            self.gaps_s.extend(array.array("d", [gap_s]) * len(requests))
        for request in requests:
            request.num_computed += len(times)
            request.answer += [0] * len(times)
            request.simulated.note_answer(self.clock.now_s, len(request.answer))

    def _num_alike(self, request: Request) -> int:
        """Return how many further steps of a request are the same as its last one, and do not end it."""
        if request.row is None:
            return 0
        num_slots = min(len(request.blocks) * self._pool.block_size, _smallest(self._pool.step_s, request.num_computed))
        return min(num_slots - request.num_computed, request.max_new_tokens - len(request.answer) - 1)

    def _add_tokens(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.simulated.end_s is not None:
                self.gaps_s.append(self.clock.now_s - request.simulated.end_s)
            request.answer.append(0)
            request.simulated.note_answer(self.clock.now_s, len(request.answer))
            if len(request.answer) == request.max_new_tokens:
                self.scheduler.end(request)


def _keep_prefix(blocks: BlockPool, num_tokens: int) -> list[bytes]:
    """Fill blocks with a prefix, as earlier requests would have left them, and return its hashes."""
    hashes = chain_hashes([0] * num_tokens, blocks.block_size)
    filled = [blocks.allocate() for _ in hashes]
    for block, content in zip(filled, hashes, strict=True):
        blocks.publish(block, content)
    for block in reversed(filled):
        blocks.release(block)
    return hashes


def _smallest(sizes: Iterable[int], num_slots: int) -> int:
    return min(slots for slots in sizes if slots >= num_slots)


def simulate_requests(pool: ServedPool | ServedRows, arrivals_s: Sequence[float]) -> list[SimulatedTimes]:
    """Return the times of requests that arrive at these times, in the order of their arrival."""
    requests = [
        Request(
            request_id=str(number),
            prompt=[0] * pool.num_prompt,
            max_new_tokens=pool.num_answer,
            simulated=SimulatedTimes(arrival_s=arrival_s),
        )
        for number, arrival_s in enumerate(sorted(arrivals_s))
    ]
    pool.serve(requests)
    return [request.simulated for request in requests]


def poisson_arrivals(requests_per_s: float, num_requests: int, *, seed: int = 0) -> list[float]:
    """Return the times of requests that arrive independently of each other, the same ones for the same seed."""
    chance, now_s, arrivals = random.Random(seed), 0.0, []
    for _ in range(num_requests):
        now_s += chance.expovariate(requests_per_s)
        arrivals.append(now_s)
    return arrivals


def capacity_per_s(pool: ServedPool | ServedRows) -> float:
    """Return the requests that an engine finishes each second while others always wait."""
    rows = pool.num_rows
    ends = sorted(times.end_s or 0.0 for times in simulate_requests(pool, [0.0] * (FILLS * rows)))
    first, last = rows - 1, (FILLS - 1) * rows - 1  # neither the first fill nor the last, which leaves rows empty
    return (last - first) / (ends[last] - ends[first])


def serve_load(pool: ServedPool | ServedRows, requests_per_s: float, *, slower: float = 1.0) -> dict[str, float]:
    """Return the means and percentiles of a random load in milliseconds, by name; all times are `slower` as long."""
    work = pool.num_answer + -(-pool.num_prompt // pool.chunk_size)
    num_requests = min(max(NUM_TOKENS // work, FEWEST_REQUESTS), MOST_REQUESTS)
    arrivals_s = [arrival / slower for arrival in poisson_arrivals(requests_per_s, num_requests)]
    times = simulate_requests(pool, arrivals_s)[int(WARM_UP * num_requests) :]
    return {name: slower * value for name, value in summarize(times).items()}


def summarize(times: Sequence[SimulatedTimes]) -> dict[str, float]:
    """Return the mean and the 90th percentile of waits, first tokens, tokens, and latencies, in milliseconds.

    An answer of one token has no time per output token.
    """
    summary = {}
    for name in ("wait", "ttft", "tpot", "latency"):
        values = sorted(value for one in times if (value := getattr(one, f"{name}_s")) is not None)
        if values:
            summary[f"{name}_mean_ms"] = 1e3 * sum(values) / len(values)
            for percent in (90, 95):
                summary[f"{name}_p{percent}_ms"] = 1e3 * values[len(values) * percent // 100]
    return summary
