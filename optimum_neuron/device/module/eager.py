"""Adaptive Eager Execution: operators wait in a queue of their core, and another thread runs them in order.

Off by default. The results of a program are the same, bit for bit; its synchronization points, and the time of kernel
errors, differ. The queues are csrc/queue.h.

    with torch.neuron.adaptive_eager(True):
        y = (x * 2 + 1).relu()
    print(torch.neuron.eager_statistics())
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Mapping

from ...base import env
from .. import library
from .devices import Device, _claimed, _require, synchronize

_read_environment = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagerStatistics:
    """Fused operators of a device since it was switched on, or since `reset_eager_statistics`."""

    runs: Mapping[tuple[str, ...], int]
    """Number of times each sequence of operators was submitted, by the names of its operators."""
    flushes: Mapping[str, int]
    """Number of waits of the program, by reason: "item", "copy", "synchronize", or the name of an operator."""

    @property
    def num_runs(self) -> int:
        """Runs that were handed over."""
        return sum(self.runs.values())

    @property
    def num_operators(self) -> int:
        """Operators in them."""
        return sum(len(names) * count for names, count in self.runs.items())

    @property
    def num_fused(self) -> int:
        """Operators in runs of two or more."""
        return sum(len(names) * count for names, count in self.runs.items() if len(names) > 1)

    def __str__(self) -> str:
        lines = [f"{self.num_operators} operators in {self.num_runs} runs, {self.num_fused} of them fused"]
        runs = {_shortened(names): count for names, count in self.runs.items()}
        for what, counts in (("runs", runs), ("flushes", self.flushes)):
            lines += [what]
            lines += [f"{n:7d}  {name}" for name, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
        return "\n".join(lines)


def _shortened(names: tuple[str, ...]) -> str:
    """Join the names, with the count of one that repeats."""
    texts = []
    for name, group in itertools.groupby(names):
        num = len(list(group))
        texts.append(name if num == 1 else f"{name} x{num}")
    return ", ".join(texts)


@contextlib.contextmanager
def adaptive_eager(enabled: bool) -> Iterator[None]:
    """Switch Adaptive Eager Execution on or off for a block, in every thread; leaving a block waits for the queues.

    Raises:
        RuntimeError: an operator that had been queued failed; it is named.
    """
    begin()
    before = bool(library.load().neuron_adaptive_eager())
    _set(enabled)
    try:
        yield
    finally:
        _set(before)


def eager_statistics(device: Device = None) -> EagerStatistics:
    """Return statistics of the operators fused on a device.

    Waits for its queue; errors stay there for the next synchronization.
    """
    index = _require(device)
    runs: dict[tuple[str, ...], int] = {}
    flushes: dict[str, int] = {}
    for line in library.load().neuron_eager_statistics(index).decode().splitlines():
        kind, count, names = line.split(" ", 2)
        if kind == "run":
            runs[tuple(name.removeprefix("aten::") for name in names.split())] = int(count)
        else:
            flushes[names] = int(count)
    return EagerStatistics(runs=runs, flushes=flushes)


def reset_eager_statistics(device: Device = None) -> None:
    """Set the counts to zero."""
    library.load().neuron_reset_eager_statistics(_require(device))


def begin() -> None:
    """Apply the environment, once, at the first use of a core; a wrong value is an error there."""
    global _read_environment
    if not _read_environment:
        enabled = env.adaptive_eager()
        _read_environment = True
        if enabled:
            _set(True)


def _set(enabled: bool) -> None:
    library.load().neuron_set_adaptive_eager(enabled)
    if enabled:
        # Threads of queues may not meet the end of the process; registering again moves it before later handlers.
        atexit.unregister(_finish)
        atexit.register(_finish)
        _drain_before_forks()
    else:
        for device in _claimed():
            synchronize(device)


@functools.cache
def _drain_before_forks() -> None:
    """A queue may have to call a kernel in Python, which it cannot while C++ waits for it in the fork."""
    os.register_at_fork(before=library.load().neuron_drain_queues)


def _finish() -> None:
    """Nothing is queued from here on, and the queue is drained; unreported errors are shown."""
    _set(False)
