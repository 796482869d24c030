"""One step of serving: plan, copy blocks, read a chunk, run a step, choose tokens. It has no thread of its own.

engine = Engine(Runner(loaded, signature))
engine.add(request)
while engine.has_work:
    for request in engine.step():
        print(request.request_id, request.answer)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import torch

from .blocks import BlockPool, chain_hashes
from .clock import Clock, DeviceTimer
from .counters import Counters
from .request import Request, Status
from .runner import Runner
from .scheduler import Plan, Scheduler


class Engine:
    """Requests, and the program that answers them. Other threads may add and cancel requests during a step."""

    def __init__(self, runner: Runner, *, enable_prefix_caching: bool = True) -> None:
        self.runner, self._shares = runner, enable_prefix_caching
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self.scheduler = Scheduler(self.pool, num_rows=runner.num_rows, chunk_size=runner.chunk_size)
        self.counters = Counters()
        self.clock = Clock(runner.serving_cost, block_bytes=runner.block_bytes)
        self._timer = DeviceTimer()
        self.lock = threading.RLock()
        """Held while requests are planned, added, or ended; not while graphs run."""
        self._requests: dict[str, Request] = {}
        self._cancelled: set[str] = set()
        self._not_finite: set[str] = set()

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return self.scheduler.has_work

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        with self.lock:
            assert request.request_id not in self._requests, "whoever adds requests names them differently"
            if self._shares:
                request.hashes = chain_hashes(request.prompt, self.pool.block_size, request.adapter.key)
            if request.simulated.arrival_s is None:
                request.simulated.arrival_s = self.clock.now_s
            self.scheduler.add(request)
            self._requests[request.request_id] = request
            self.counters.prompt_tokens_total += len(request.prompt)

    def has(self, request_id: str) -> bool:
        """Return whether a request waits or runs."""
        return request_id in self._requests

    def cancel(self, request_id: str) -> None:
        """End a request before the next step; one that is over stays as it is."""
        with self.lock:
            if request_id in self._requests:
                self._cancelled.add(request_id)

    def step(self) -> list[Request]:
        """Do one step; return the requests that have a new token or are over."""
        self._timer.lap_s()
        started = time.perf_counter()
        with self.lock:
            cancelled = RuntimeError("The request was cancelled.")
            over = [self._end(self._requests[name], Status.FAILED, cancelled) for name in sorted(self._cancelled)]
            self.counters.requests_cancelled_total += len(over)
            plan = self.scheduler.plan()
            self.counters.preemptions_total = self.scheduler.num_preemptions
        self._copy(plan)
        self.clock.copy(plan)
        self.counters.scheduling_seconds_total += time.perf_counter() - started
        changed = []
        with torch.inference_mode():
            if plan.chunk is not None:
                plan.chunk.request.simulated.start(self.clock.now_s)
                changed += self._read(plan)
                self.clock.read(self._timer.lap_s())
                self._note(changed)
            if plan.steps:
                stepped = self._step(plan.steps)
                self.clock.step(self._timer.lap_s(), num_rows=len(plan.steps))
                self._note(stepped)
                changed += stepped
        self.counters.simulated_seconds_total = self.clock.busy_s
        return over + changed

    def _note(self, requests: Sequence[Request]) -> None:
        """Note the simulated times of requests that have new tokens."""
        for request in requests:
            request.simulated.note_answer(self.clock.now_s, len(request.answer))
            if request.status == Status.FINISHED:
                self.counters.add_times(request.simulated)

    def fail_all(self, error: Exception) -> list[Request]:
        """End all requests with an error; return them."""
        with self.lock:
            return [self._end(request, Status.FAILED, error) for request in [*self._requests.values()]]

    def _copy(self, plan: Plan) -> None:
        for request, blocks in plan.preempted:
            request.saved = self.runner.save(blocks)
        for request, blocks in plan.resumed:
            self.runner.restore(request.saved, blocks)
            request.saved = None
        for request, _ in plan.resumed:
            assert request.row is not None
            self.runner.free_row(request.row)

    def _read(self, plan: Plan) -> list[Request]:
        """Read the chunk; the request gets its first token if it was the last one."""
        chunk = plan.chunk
        assert chunk is not None
        request, started = chunk.request, time.perf_counter()
        logits_V = self.runner.read(request, chunk.start, chunk.num_tokens)
        self.counters.chunks_total += 1
        self.counters.chunk_seconds_total += time.perf_counter() - started
        with self.lock:
            self.scheduler.read(chunk)
        if not chunk.is_last:
            return []
        assert request.row is not None, "a request that is read has a row"
        self.runner.free_row(request.row)
        self.counters.shared_tokens_total += request.num_shared
        request.status = Status.DECODING
        return self._choose([request], [logits_V])

    def _step(self, requests: Sequence[Request]) -> list[Request]:
        started = time.perf_counter()
        logits = self.runner.step(requests)
        self.counters.steps_total += 1
        self.counters.step_seconds_total += time.perf_counter() - started
        for request in requests:
            request.num_computed += 1
        return self._choose(requests, logits)

    def _choose(self, requests: Sequence[Request], logits: Sequence[torch.Tensor]) -> list[Request]:
        """Give every request its next token; one whose settings fail ends alone."""
        started = time.perf_counter()
        for request, logits_V in zip(requests, logits, strict=True):
            try:
                largest, index = logits_V.max(-1)
                if not largest.isfinite():
                    self._not_finite.add(request.request_id)
                token, logprob = (int(index), None) if request.sampler.is_plain else request.sampler.choose(logits_V)
                request.add(token, logprob)
                is_complete = request.sampler.ends_with(token, len(request.answer))
            except Exception as error:  # noqa: BLE001  # processors and criteria are anybody's code
                self._end(request, Status.FAILED, error)
                continue
            self.counters.answer_tokens_total += 1
            if is_complete:
                self._end(request, Status.FINISHED)
        self.counters.sampling_seconds_total += time.perf_counter() - started
        return list(requests)

    def _end(self, request: Request, status: Status, error: Exception | None = None) -> Request:
        with self.lock:
            blocks = [*request.blocks]
            self.scheduler.end(request)
            request.end(status, error)
            del self._requests[request.request_id]
            self._cancelled.discard(request.request_id)
            if request.request_id in self._not_finite:
                self._not_finite.discard(request.request_id)
                unused = [block for block in blocks if not self.pool.is_used(block)]
                for block in unused:
                    self.pool.withdraw(block)
                self.runner.clear(unused)
            name = "requests_failed_total" if status == Status.FAILED else "requests_finished_total"
            setattr(self.counters, name, getattr(self.counters, name) + 1)
        return request
