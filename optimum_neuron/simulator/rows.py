"""A decoder that reads the prompts of all free rows, one after the other, before its next step.

Servers without chunks do that: vLLM's on Neuron return the first tokens of those prompts together, and meanwhile no
running answer gets a token. So prompts make the tokens of others late, and answers that end together begin together.

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
        return "the prompts of all free rows are read before the next step"

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
        """Read the prompts that have a row, then do a step."""
        self.advance(self.clock.now_s)

    def advance(self, until_s: float) -> None:
        """Read the prompts that have a row, then do steps up to a time, at least one, or until an answer ends."""
        num_free = self._rows.num_rows - len(self._running)
        first = [self._waiting.popleft() for _ in range(min(num_free, len(self._waiting)))]
        for request in first:
            request.simulated.start(self.clock.now_s)
        if first:
            self.clock.read(len(first) * self._rows.prompt_s)
            self._add_tokens(first, 1)
            self._running += [request for request in first if not is_answered(request)]
        if not self._running:
            return
        num_rows, device_s = len(self._running), self._rows.step_s
        num_steps = min(request.max_new_tokens - request.simulated.num_tokens for request in self._running)
        if until_s < math.inf:
            left_s = until_s - self.clock.now_s
            num_steps = max(min(num_steps, math.ceil(left_s / self.clock.step_s(device_s, num_rows))), 1)
        self.clock.step(device_s, num_rows=num_rows, num_steps=num_steps)
        self._add_tokens(self._running, num_steps)
        self._running = [request for request in self._running if not is_answered(request)]

    def _add_tokens(self, requests: Sequence[Request], num_tokens: int) -> None:
        for request in requests:
            request.simulated.note_answer(self.clock.now_s, request.simulated.num_tokens + num_tokens)


def is_answered(request: Request) -> bool:
    """Return whether a request has its whole answer."""
    return request.simulated.num_tokens == request.max_new_tokens
