"""One step of serving: propose candidates, plan, copy blocks, read a chunk, run a step, choose tokens.

It has no thread of its own.

engine = Engine(Runner(loaded, signature))
engine.add(request)
while engine.has_work:
    for request in engine.step():
        print(request.request_id, request.answer)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import torch

from ..engine import NEXT_TOKEN, TOP_LOGITS, TOP_TOKENS
from .blocks import BlockPool, chain_hashes
from .clock import Clock, DeviceTimer
from .counters import Counters
from .request import Request, Status
from .runner import Results, Runner
from .scheduler import Chunk, Plan, Scheduler

logger = logging.getLogger(__name__)


class Engine:
    """Requests, and the program that answers them. Other threads may add and cancel requests during a step."""

    def __init__(self, runner: Runner, *, enable_prefix_caching: bool = True) -> None:
        self.runner = runner
        # A state that tokens change is there for the newest of them only, not where another prompt goes on.
        self._shares = enable_prefix_caching and not runner.has_row_states
        self.pool = BlockPool(runner.num_blocks, runner.block_size)
        self.scheduler = Scheduler(self.pool, num_rows=runner.num_rows, chunk_sizes=runner.chunk_sizes)
        self.counters = Counters()
        self.clock = Clock(runner.serving_cost, block_bytes=runner.block_bytes)
        self._timer = DeviceTimer()
        self.lock = threading.RLock()
        """Held while requests are planned, added, or ended; not while graphs run."""
        self._requests: dict[str, Request] = {}
        self._cancelled: set[str] = set()

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return self.scheduler.has_work

    @property
    def num_on_earlier_code(self) -> int:
        """Number of requests that still run on earlier host code."""
        with self.lock:
            return sum(map(self.runner.is_earlier, (*self.scheduler.running, *self.scheduler.preempted)))

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        with self.lock:
            assert request.request_id not in self._requests, "whoever adds requests names them differently"
            # Hidden states of a shared prefix are not kept.
            if self._shares and not (request.draft and request.draft.reads_prompt):
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
        failed = self._propose()
        started = time.perf_counter()
        with self.lock:
            cancelled = RuntimeError("The request was cancelled.")
            over = [self._end(self._requests[name], Status.FAILED, cancelled) for name in sorted(self._cancelled)]
            self.counters.requests_cancelled_total += len(over)
            plan = self._plan()
            self.counters.preemptions_total = self.scheduler.num_preemptions
        self._copy(plan)
        self.clock.copy(plan)
        self.counters.scheduling_seconds_total += time.perf_counter() - started
        changed = []
        with torch.inference_mode():
            for chunk in plan.chunks:
                chunk.request.simulated.start(self.clock.now_s)
                answered = self._read(chunk)
                self.clock.read(self._lap_s())
                self._note(answered)
                changed += answered
            if plan.steps:
                stepped = self._step(plan.steps)
                self.clock.step(self._lap_s(), num_rows=len(plan.steps))
                self._note(stepped)
                changed += stepped
        self.counters.simulated_seconds_total = self.clock.busy_s
        return failed + over + changed

    def _plan(self) -> Plan:
        """Plan a step; requests that begin in it run on the newest host code, and share nothing with earlier ones."""
        scheduler = self.scheduler
        if self.runner.renew():
            self.pool.forget_all()
            for request in (*scheduler.running, *scheduler.preempted):
                request.hashes = []
        plan = scheduler.plan()
        for request in scheduler.running:
            request.state = request.state or self.runner.state
        return plan

    def _lap_s(self) -> float:
        """Return the simulated time of the calls since the last lap, and count those without one."""
        seconds = self._timer.lap_s()
        self.counters.untimed_calls_total += self._timer.num_untimed
        return seconds

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

    def _propose(self) -> list[Request]:
        """Let drafts propose candidates; a request whose draft fails ends alone, and is returned.

        One that is preempted afterwards keeps them, so that it goes on as it would have.
        """
        started, failed = time.perf_counter(), []
        for request in [*self.scheduler.running]:
            if request.draft is None or not request.is_prompt_read:
                continue
            # The last token is never checked: its logits are not needed.
            room = min(self.runner.most_candidates, request.max_new_tokens - len(request.answer) - 1)
            try:
                request.candidates = request.draft.propose(request.sampler.ids, room)
            except Exception as error:  # noqa: BLE001  # a draft is anybody's model
                failed.append(self._end(request, Status.FAILED, error))
        self.counters.draft_seconds_total += time.perf_counter() - started
        return failed

    def _copy(self, plan: Plan) -> None:
        for request, blocks, row in plan.preempted:
            request.saved = self.runner.save(blocks, row)
        if reused := self.pool.take_reused():
            self.runner.clear(reused)
        for request, blocks, row in plan.resumed:
            self.runner.restore(request.saved, blocks, row)
            request.saved = None
            if not request.is_finite:
                self.pool.spoil(request.blocks)
            self.runner.free_row(row)

    def _read(self, chunk: Chunk) -> list[Request]:
        """Read a chunk; the request gets its first token if it was the last one."""
        request, started = chunk.request, time.perf_counter()
        results = self.runner.read(request, chunk.start, chunk.num_tokens)
        if request.draft is not None:
            request.draft.keep(results, chunk.num_tokens)
        self.counters.chunks_total += 1
        self.counters.chunk_seconds_total += time.perf_counter() - started
        if not results["logits"].max().isfinite():
            self._note_not_finite(request)
        with self.lock:
            self.scheduler.read(chunk)
        if not chunk.is_last:
            return []
        assert request.row is not None, "a request that is read has a row"
        self.runner.free_row(request.row)
        self.counters.shared_tokens_total += request.num_shared
        request.status = Status.DECODING
        return self._choose([request], [results])

    def _step(self, requests: Sequence[Request]) -> list[Request]:
        started = time.perf_counter()
        results = self.runner.step(requests)
        self.counters.steps_total += 1
        self.counters.step_seconds_total += time.perf_counter() - started
        return self._choose(requests, results)

    def _choose(self, requests: Sequence[Request], results: Sequence[Results]) -> list[Request]:
        """Give every request its next tokens; one whose settings fail ends alone."""
        started = time.perf_counter()
        for request, result in zip(requests, results, strict=True):
            try:
                is_complete = self._take(request, result)
            except Exception as error:  # noqa: BLE001  # processors and criteria are anybody's code
                self._end(request, Status.FAILED, error)
                continue
            if is_complete:
                self._end(request, Status.FINISHED)
        self.counters.sampling_seconds_total += time.perf_counter() - started
        return list(requests)

    def _note_not_finite(self, request: Request) -> None:
        """Keep NaN and infinity within a request: its blocks are cleared before another one gets them."""
        request.is_finite = False
        self.runner.note_not_finite()
        with self.lock:
            self.pool.spoil(request.blocks)

    def _drop_draft(self, request: Request) -> None:
        """Let a request go on without candidates: NaN of one is in the results of the others, and in the cache."""
        logger.warning("Request %s goes on without its draft: a check gave NaN or infinity.", request.request_id)
        self.runner.clear_slots(request.blocks, range(request.num_computed, request.num_next))
        request.candidates, request.draft = [], None

    def _take(self, request: Request, results: Results) -> bool:
        """Add tokens to an answer as long as the next candidate is the one before; return whether it is complete."""
        # Steps return candidates of the device, if they were compiled so; chunks and checks do not.
        on_device = (results[TOP_LOGITS], results[TOP_TOKENS]) if NEXT_TOKEN in results else None
        if on_device is None:
            largest, tokens = results["logits"].max(1)
        else:
            values, _ = on_device
            largest, tokens = values[:, 0], results[NEXT_TOKEN].flatten()
            request.reading = request.reading or request.sampler.reading(values.shape[1])
        if not largest.isfinite().all():
            if request.candidates:
                self._drop_draft(request)
                return False
            self._note_not_finite(request)
        candidates, request.candidates = request.candidates, []
        self.counters.checks_total += bool(candidates)
        self.counters.candidate_tokens_total += len(candidates)
        num_before = len(request.answer)
        for candidate, logits_V, likeliest in zip([*candidates, None], results["logits"], tokens.tolist(), strict=True):
            plain = (likeliest, None)
            token, logprob = plain if request.sampler.is_plain else request.sampler.choose(logits_V, on_device)
            request.add(token, logprob)
            self.counters.answer_tokens_total += 1
            self.counters.accepted_tokens_total += token == candidate
            is_complete = request.sampler.ends_with(token, len(request.answer))
            if is_complete or token != candidate:
                break
        # The newest token is not in the cache, and rejected ones behind it are overwritten before they are seen.
        request.num_computed = request.num_tokens - 1
        if request.draft is not None and num_before:
            request.draft.keep(results, len(request.answer) - num_before)
        return is_complete

    def _end(self, request: Request, status: Status, error: Exception | None = None) -> Request:
        with self.lock:
            self.scheduler.end(request)
            request.end(status, error)
            del self._requests[request.request_id]
            self._cancelled.discard(request.request_id)
            name = "requests_failed_total" if status == Status.FAILED else "requests_finished_total"
            setattr(self.counters, name, getattr(self.counters, name) + 1)
        return request
