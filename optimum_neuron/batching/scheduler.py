"""Who runs: gives rows and blocks to requests, reads prompts in chunks between steps, and preempts when blocks run out.

It is pure: no tensors, no clock, no threads. A plan says what to do, in the order of its fields.

    scheduler = Scheduler(BlockPool(num_blocks=9, block_size=4), num_rows=2, chunk_sizes=(4, 8))
    scheduler.add(Request(request_id="a", prompt=[1, 2, 3], max_new_tokens=4))
    plan = scheduler.plan()

Requests run in the order of their priority, then of their arrival. Prompts are read one after the other, in chunks of
the largest size, and their ends in the smallest that fits. Before every step, as many tokens are read as the largest
chunk has, padding included: one chunk, or the ends of several prompts. So answers go on meanwhile. A request gets the
blocks of its prompt at once, and more whenever its answer and the candidates of its draft fill them. If there are none,
the last request in that order gives way: its keys and values wait on the host, and it goes on from them when there is
room. They are not computed again, because a step and a chunk may round differently. A request that waits takes no row
from one that runs, whatever their priorities. While requests of a lower number come, others may wait without end.

Prompts share what they begin with, in whole chunks: every prompt is divided at the same places, so what is shared is
exactly what the request would have computed.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Sequence

from ..engine import smallest_bucket
from .blocks import BlockPool
from .request import Request, Status


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chunk:
    """Tokens of a prompt that are read at once."""

    request: Request
    start: int
    num_tokens: int

    @property
    def is_last(self) -> bool:
        """Whether the answer begins with its last token."""
        return self.start + self.num_tokens == len(self.request.prompt)


@dataclasses.dataclass(kw_only=True)
class Plan:
    """What to do next, in this order."""

    preempted: list[tuple[Request, list[int], int]] = dataclasses.field(default_factory=list)
    """Requests whose blocks and row are copied to the host, with these blocks and this row."""
    resumed: list[tuple[Request, list[int], int]] = dataclasses.field(default_factory=list)
    """Requests whose blocks and row are copied back, to these blocks and this row."""
    chunks: list[Chunk] = dataclasses.field(default_factory=list)
    """Parts of prompts that are read, each of another request."""
    steps: list[Request] = dataclasses.field(default_factory=list)
    """Requests that get a token from a step."""


class Scheduler:
    """Rows of a step, blocks of the cache, and the requests that have them or wait for them."""

    def __init__(self, pool: BlockPool, *, num_rows: int, chunk_sizes: Sequence[int]) -> None:
        self.pool, self.chunk_sizes, self.chunk_size = pool, chunk_sizes, chunk_sizes[-1]
        self.waiting: list[Request] = []
        self.preempted: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._rows = list(range(num_rows - 1, -1, -1))
        self._numbers = itertools.count()
        self._shared_step = math.lcm(self.chunk_size, pool.block_size)
        """Prompts share multiples of so many tokens."""

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self.waiting or self.preempted or self.running)

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""
        assert self.pool.num_for(len(request.prompt) + request.max_new_tokens) <= self.pool.num_usable
        request.order = next(self._numbers)
        _insert(self.waiting, request)

    def plan(self) -> Plan:
        """Decide what runs next."""
        plan = Plan()
        for request in [*self.running]:
            if request.row is not None:
                self._grow(request, plan)
        self._resume(plan)
        self._plan_chunks(plan)
        plan.steps = [request for request in self.running if request.is_prompt_read]
        return plan

    def _plan_chunks(self, plan: Plan) -> None:
        """Read a chunk, or the ends of several prompts.

        Only the last chunk of a prompt is short, and what others may share was read before it: so a prompt that is
        admitted behind it shares the same blocks now as later.
        """
        room, planned = self.chunk_size, set[int]()
        while room >= self.chunk_sizes[0]:
            unread = (one for one in self.running if not one.is_prompt_read and id(one) not in planned)
            request = next(unread, None) or self._admit()
            if request is None:
                return
            num_tokens = min(self.chunk_size, len(request.prompt) - request.num_computed)
            size = smallest_bucket(num_tokens, self.chunk_sizes)
            assert size is not None, "no chunk is larger than the largest"
            if size > room:
                return
            room -= size
            planned.add(id(request))
            plan.chunks.append(Chunk(request=request, start=request.num_computed, num_tokens=num_tokens))

    def read(self, chunk: Chunk) -> None:
        """Note that a chunk was computed: later prompts may begin with its blocks."""
        request = chunk.request
        request.num_computed = chunk.start + chunk.num_tokens
        if chunk.num_tokens == self.chunk_size:
            size = self.pool.block_size
            for number in range(chunk.start // size, request.num_computed // size):
                if number < len(request.hashes):
                    self.pool.publish(request.blocks[number], request.hashes[number])

    def end(self, request: Request) -> None:
        """Take row and blocks from a request, wherever it is."""
        if request in self.running:
            self._stop(request)
        elif request in self.preempted:
            self.preempted.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        request.saved = None

    def _grow(self, request: Request, plan: Plan) -> None:
        """Make sure that there are slots for the request's newest token and its candidates."""
        while self.pool.num_for(request.num_next) > len(request.blocks):
            if self.pool.num_free:
                request.blocks.append(self.pool.allocate())
                continue
            last = self.running[-1]
            self._preempt(last, plan)
            if last is request:
                return

    def _preempt(self, request: Request, plan: Plan) -> None:
        num_filled = self.pool.num_for(request.num_computed)
        assert request.row is not None, "a running request has a row"
        plan.preempted.append((request, request.blocks[:num_filled], request.row))
        self._stop(request)
        _insert(self.preempted, request)
        self.num_preemptions += 1

    def _resume(self, plan: Plan) -> None:
        """Let preempted requests go on, the earliest first, if every running one can still fill a block."""
        gone = {id(request) for request, _, _ in plan.preempted}
        while self.preempted and self._rows and id(self.preempted[0]) not in gone:
            request = self.preempted[0]
            if self.waiting and self.waiting[0].rank < request.rank:
                return
            num_blocks = self.pool.num_for(max(len(request.prompt) + 1, request.num_next))
            if num_blocks + len(self.running) > self.pool.num_free:
                return
            self.preempted.pop(0)
            request.blocks = [self.pool.allocate() for _ in range(num_blocks)]
            row = self._run(request)
            plan.resumed.append((request, request.blocks[: self.pool.num_for(request.num_computed)], row))

    def _admit(self) -> Request | None:
        """Let the next request run, if it has a row and blocks; return it."""
        if not self.waiting or not self._rows:
            return None
        request = self.waiting[0]
        if self.preempted and self.preempted[0].rank < request.rank:
            return None
        found = self.pool.find(request.hashes)
        # The last token is computed in any case: the answer begins with its logits.
        num_shared = min(len(found) * self.pool.block_size, len(request.prompt) - 1)
        num_shared -= num_shared % self._shared_step
        shared = found[: num_shared // self.pool.block_size]
        num_more = self.pool.num_for(len(request.prompt) + 1) - len(shared)
        if num_more > self.pool.num_free - sum(map(self.pool.is_idle, shared)):
            return None
        del self.waiting[0]
        for block in shared:
            self.pool.share(block)
        request.blocks = shared + [self.pool.allocate() for _ in range(num_more)]
        request.num_computed = request.num_shared = num_shared
        self._run(request)
        return request

    def _run(self, request: Request) -> int:
        request.row = row = self._rows.pop()
        request.start()
        request.status = Status.DECODING if request.is_prompt_read else Status.PREFILLING
        _insert(self.running, request)
        return row

    def _stop(self, request: Request) -> None:
        assert request.row is not None, "a running request has a row"
        self.running.remove(request)
        self._rows.append(request.row)
        request.row = None
        for block in reversed(request.blocks):
            self.pool.release(block)
        request.blocks = []


def _insert(requests: list[Request], request: Request) -> None:
    """Add a request at its place."""
    bisect.insort(requests, request, key=lambda one: one.rank)
