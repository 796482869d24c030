"""A queue that gathers the items of several requests to batches, which one thread computes.

It is for models that answer in one call, such as encoders. It knows neither models nor HTTP.

    batcher = Batcher(lambda items, is_wanted: [item * 2 for item in items], max_batch_size=8, max_queue_size=64)
    assert await batcher.run([1, 2]) == [2, 4]

Requests run in the order of their priority, then of their arrival. A batch takes items with the same key, of one
request or several. A request that is cancelled or too late leaves the queue; `is_wanted` tells a batch whether anybody
still waits for it.
"""

from __future__ import annotations

import asyncio
import bisect
import concurrent.futures
import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from ...errors import QueueFullError, RequestError
from ..problems import too_slow

Item = TypeVar("Item")
Result = TypeVar("Result")
IsWanted = Callable[[], bool]


@dataclasses.dataclass(eq=False, kw_only=True)
class _Job:
    """The items of one request."""

    items: Sequence[Any]
    rank: tuple[int, int]
    """Priority and arrival."""
    future: concurrent.futures.Future[list[Any]] = dataclasses.field(default_factory=concurrent.futures.Future)
    results: list[Any] = dataclasses.field(default_factory=list)
    num_taken: int = 0
    """Items that are in a batch or computed; the others wait."""

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it was cancelled
            self.future.set_exception(error)

    def add(self, results: Sequence[Any]) -> None:
        """Add results of the next items; the last ones end it."""
        self.results += results
        if len(self.results) == len(self.items):
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                self.future.set_result(self.results)


class Batcher(Generic[Item, Result]):
    """Runs work on batches of items in a thread of its own."""

    def __init__(
        self,
        work: Callable[[list[Item], IsWanted], Sequence[Result]],
        *,
        max_batch_size: int,
        max_queue_size: int,
        key: Callable[[Item], Hashable] = lambda item: None,
    ) -> None:
        self._work, self._key = work, key
        self._max_batch_size, self._max_queue_size = max_batch_size, max_queue_size
        self._changed = threading.Condition()
        self._jobs: list[_Job] = []
        """Jobs that are not over, by rank."""
        self._numbers = itertools.count()
        self._stops = False
        self._thread = threading.Thread(target=self._serve, name="batches", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Requests without a computed item."""
        return sum(not job.num_taken for job in [*self._jobs])

    @property
    def num_running(self) -> int:
        """Requests that are partly computed."""
        return sum(bool(job.num_taken) for job in [*self._jobs])

    async def run(self, items: Sequence[Item], *, priority: int = 0, timeout_s: float | None = None) -> list[Result]:
        """Return the results of items, in their order; leaving the loop cancels them."""
        job = self._add(items, priority)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.wrap_future(job.future)
        except TimeoutError:
            raise too_slow(timeout_s or 0) from None
        finally:
            job.future.cancel()

    def _add(self, items: Sequence[Item], priority: int) -> _Job:
        with self._changed:
            if self._stops:
                raise RequestError("The server is stopping.", hint="Send the request to another one.", status=503)
            self._forget_done()
            if (number := self.num_waiting) >= self._max_queue_size:
                message = f"{number} requests wait already."
                raise QueueFullError(message, hint="Try again later.", limit=self._max_queue_size)
            job = _Job(items=items, rank=(priority, next(self._numbers)))
            bisect.insort(self._jobs, job, key=lambda one: one.rank)
            self._changed.notify_all()
            return job

    def close(self, timeout_s: float | None = None) -> None:
        """Compute what waits, at most for `timeout_s` seconds, then end; jobs that are left fail."""
        with self._changed:
            self._stops = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            left, self._jobs[:] = [*self._jobs], []
        for job in left:
            job.fail(RequestError("The server was stopped.", hint="Send the request again.", status=503))
        self._thread.join()  # one batch at most, which nobody wants

    def _serve(self) -> None:
        while batch := self._take():
            self._compute(batch)

    def _take(self) -> list[tuple[_Job, list[Any]]]:
        """Wait for items; return the next batch of them, with their jobs; empty at the end."""
        with self._changed:
            while True:
                self._forget_done()
                batch = self._next_batch()
                if batch or self._stops:
                    return batch
                self._changed.wait()

    def _forget_done(self) -> None:
        """Drop jobs that are over or cancelled."""
        self._jobs[:] = [job for job in self._jobs if not job.future.done()]

    def _next_batch(self) -> list[tuple[_Job, list[Any]]]:
        batch: list[tuple[_Job, list[Any]]] = []
        room, key = self._max_batch_size, None
        for job in self._jobs:
            items: list[Any] = []
            for item in job.items[job.num_taken :][:room]:
                key = self._key(item) if not batch and not items else key
                if self._key(item) != key:
                    break
                items.append(item)
            if items:
                job.num_taken += len(items)
                room -= len(items)
                batch.append((job, items))
            if not room:
                break
        return batch

    def _compute(self, batch: list[tuple[_Job, list[Any]]]) -> None:
        jobs = [job for job, _ in batch]

        def is_wanted() -> bool:
            return not all(job.future.done() for job in jobs)

        try:
            results = self._work([item for _, items in batch for item in items], is_wanted)
        except Exception as error:  # noqa: BLE001  # each request is told
            if len(batch) == 1:
                jobs[0].fail(error)
                return
            for part in batch:  # only the requests that are the cause shall fail
                self._compute([part])
            return
        start = 0
        for job, items in batch:
            job.add(results[start : start + len(items)])
            start += len(items)
