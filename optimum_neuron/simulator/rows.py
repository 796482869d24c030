"""A decoder that reads whole prompts between its steps, as vLLM serves models with static caches.

A step admits waiting requests while there is a row for them and their prompts fit the tokens that one step may have
(`max_num_batched_tokens`, of which every running answer takes one). The running answers decode, the admitted prompts
are read one after the other, and then all of their tokens return together. So prompts make the tokens of others late,
and of many requests that arrive at once each has its first token after its own prompt, not after the last one
(optimum-neuron, vllm/ARCHITECTURE_VLLM_SERVING.md: request lifecycle, platform-level fixes).

    engine = rows.engine()
    engine.add(request)
    engine.step()
"""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence

from ..batching import Clock, Request, arrival_s
from ..runtime import ServingCost


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServedRows:
    """What the times of requests to such a server depend on."""

    num_rows: int
    """Requests of a step."""
    prompt_s: float
    """Device time of one prompt."""
    step_s: float
    """Device time of a decode step, of as many rows as there are."""
    cost: ServingCost
    """Time around the graphs; that of a chunk is once for all prompts between two steps."""
    num_prompt: int
    num_answer: int
    batched_tokens: int | None = None
    """Tokens of one step: those of its prompts, and one for each running answer; None for no limit."""

    @property
    def chunk_size(self) -> int:
        """Tokens of prompts that are read without a break: all of one."""
        return self.num_prompt

    @property
    def longest_answer(self) -> int | None:
        """No limit: a step takes the same time for any answer."""
        return None

    @property
    def policy(self) -> str:
        """In words."""
        limit = "" if self.batched_tokens is None else f", {self.batched_tokens:,} tokens at most"
        return f"a step of the running answers is followed by the prompts of free rows{limit}"

    def engine(self) -> RowEngine:
        """Return a server without requests."""
        return RowEngine(self)

    def serve(self, requests: Sequence[Request]) -> None:
        """Serve requests that arrive in this order, at the times that they have."""
        coming, engine = collections.deque(requests), self.engine()
        while coming or engine.has_work:
            if not engine.has_work:
                engine.clock.wait_until(arrival_s(coming[0]))
            while coming and arrival_s(coming[0]) <= engine.clock.now_s:
                engine.add(coming.popleft())
            engine.advance(arrival_s(coming[0]) if coming else math.inf)


class RowEngine:
    """Serves requests in order, and runs no graph: it knows how long each takes."""

    def __init__(self, rows: ServedRows) -> None:
        self._rows = rows
        self._waiting: collections.deque[Request] = collections.deque()
        self._running: list[Request] = []
        self.clock = Clock(rows.cost, block_bytes=0)

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self._waiting or self._running)

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        self._waiting.append(request)

    def step(self) -> None:
        """Do one step, with the prompts that it admits."""
        self.advance(self.clock.now_s)

    def advance(self, until_s: float) -> None:
        """Do a step with the prompts that it admits, or, without any, steps up to a time or until an answer ends."""
        first, num_steps = self._admitted(), 1
        for request in first:
            request.simulated.start(self.clock.now_s)
        if self._running:
            num_steps = 1 if first else self._num_steps(until_s)
            self.clock.step(self._rows.step_s, num_rows=len(self._running), num_steps=num_steps)
        if first:
            self.clock.read(len(first) * self._rows.prompt_s)
        self._add_tokens(self._running, num_steps)
        self._add_tokens(first, 1)
        self._running = [request for request in (*self._running, *first) if not is_answered(request)]

    def _admitted(self) -> list[Request]:
        """Take the requests whose prompts are read with the next step: at least one, where a row is free."""
        num_running, limit = len(self._running), self._rows.batched_tokens
        fits = math.inf if limit is None else max((limit - num_running) // self._rows.num_prompt, 1)
        number = min(self._rows.num_rows - num_running, len(self._waiting), fits)
        return [self._waiting.popleft() for _ in range(int(number))]

    def _num_steps(self, until_s: float) -> int:
        """Steps until an answer ends, or up to a time, at least one."""
        num_steps = min(request.max_new_tokens - request.simulated.num_tokens for request in self._running)
        if until_s == math.inf:
            return num_steps
        step_s = self.clock.step_s(self._rows.step_s, len(self._running))
        return max(min(num_steps, math.ceil((until_s - self.clock.now_s) / step_s)), 1)

    def _add_tokens(self, requests: Sequence[Request], num_tokens: int) -> None:
        for request in requests:
            request.simulated.note_answer(self.clock.now_s, request.simulated.num_tokens + num_tokens)


def is_answered(request: Request) -> bool:
    """Return whether a request has its whole answer."""
    return request.simulated.num_tokens == request.max_new_tokens
