"""The simulated clock of a served load: the device time of every call, and the host and copies around it.

    clock = Clock(HOOKS.serving_cost("inf2.xlarge"), block_bytes=4096)
    clock.step(device_s=0.004, num_rows=8)
    clock.now_s

`Engine` has one for the calls that it makes, and `simulator/continuous.py` one for calls that it only counts: both give
a load the same times.
"""

from __future__ import annotations

import collections
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ..runtime import HOOKS, TIMELINE, ServingCost

if TYPE_CHECKING:
    from ..runtime import Track
    from .request import Request
    from .scheduler import Plan


class Clock:
    """Simulated seconds since an engine began."""

    def __init__(self, cost: ServingCost, *, block_bytes: int) -> None:
        self.cost, self.now_s, self.busy_s = cost, 0.0, 0.0
        self._block_bytes = block_bytes

    def copy(self, plan: Plan) -> None:
        """Add the copies of a plan between host and device."""
        num_blocks = sum(len(blocks) for _, blocks, _ in (*plan.preempted, *plan.resumed))
        self._spend(num_blocks * self._block_bytes / self.cost.copy_bytes_per_s)

    def read(self, device_s: float) -> None:
        """Add a chunk of a prompt, which takes so long on the device."""
        self._spend(device_s + self.cost.chunk_s)

    def step(self, device_s: float, *, num_rows: int, num_steps: int = 1) -> None:
        """Add decode steps of so many requests, each of which takes so long on the device."""
        self._spend(num_steps * self.step_s(device_s, num_rows))

    def step_s(self, device_s: float, num_rows: int) -> float:
        """Return the time of such a step."""
        return device_s + self.cost.step_s + num_rows * self.cost.row_s

    def wait_until(self, now_s: float) -> None:
        """Skip the time until a request arrives."""
        self.now_s = max(self.now_s, now_s)

    def _spend(self, seconds: float) -> None:
        self.now_s += seconds
        self.busy_s += seconds


class DeviceTimer:
    """Simulated time of the calls that a thread makes, of a model and of its draft, with their copies.

    Calls whose time cannot be computed are left out, and counted.
    """

    def __init__(self) -> None:
        self.num_untimed = 0
        """Calls of the last lap that were left out."""
        self._last_s, self._last_untimed = 0.0, 0
        self._call_s: weakref.WeakKeyDictionary[Track, dict[str, float | None]] = weakref.WeakKeyDictionary()

    def lap_s(self) -> float:
        """Return the simulated time of this thread's calls since the last lap, one after the other."""
        times = [self._total_s(track) for track in TIMELINE.tracks()]
        before_s, self._last_s = self._last_s, sum(seconds for seconds, _ in times)
        before, self._last_untimed = self._last_untimed, sum(num_untimed for _, num_untimed in times)
        self.num_untimed = max(self._last_untimed - before, 0)  # a program that was closed took its calls along
        return self._last_s - before_s

    def _total_s(self, track: Track) -> tuple[float, int]:
        """Time of the calls of a program, and calls without one."""
        calls, call_s = track.num_calls_here(), self._call_s.setdefault(track, {})
        for graph in calls.keys() - call_s.keys():
            cost = HOOKS.call_cost(track, graph)
            call_s[graph] = None if cost is None else 1e-6 * (cost.device_us + cost.copy_us)
        num_untimed = sum(count for graph, count in calls.items() if call_s[graph] is None)
        return sum(count * (call_s[graph] or 0.0) for graph, count in calls.items()), num_untimed


class Server(Protocol):
    """Takes requests, and does their work step by step: an engine, or the simulation of one."""

    clock: Clock

    @property
    def has_work(self) -> bool:
        """Whether a request waits or runs."""

    def add(self, request: Request) -> None:
        """Let a request wait for its turn."""

    def step(self) -> object:
        """Do one step."""


def serve_trace(server: Server, requests: Sequence[Request]) -> None:
    """Serve requests that arrive at simulated times (`simulated.arrival_s`). Nothing waits: idle time is skipped.

    Example:
        ```python no-run
        engine = model.init_continuous_batching().engine
        serve_trace(engine, requests)
        print([request.simulated.ttft_s for request in requests])
        ```
    """
    coming = collections.deque(sorted(requests, key=arrival_s))
    while coming or server.has_work:
        if not server.has_work:
            server.clock.wait_until(arrival_s(coming[0]))
        while coming and arrival_s(coming[0]) <= server.clock.now_s:
            server.add(coming.popleft())
        server.step()


def arrival_s(request: Request) -> float:
    """Return when a request of a trace arrives."""
    assert request.simulated.arrival_s is not None, "a request of a trace has an arrival"
    return request.simulated.arrival_s
