"""Progress of an export: one line for each step on stderr. Disabled by the Hub's switch.

`watching` tells a server of the same steps.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..base.progress import Step
from ..base.wording import counted

if TYPE_CHECKING:
    from ..compiler.lower import Compiling, Job


_WATCHER: contextvars.ContextVar[Callable[[Progress], None] | None] = contextvars.ContextVar("watcher", default=None)


@contextlib.contextmanager
def watching(watcher: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function at each step of the exports of this thread inside."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def follow(compiling: Compiling, title: str) -> None:
    """Show the progress of background compilation on stderr until it ends."""
    blocks = counted(len(compiling.jobs), "block")
    with Step(title) as step:
        step.note(blocks)
        while not compiling.wait(0.5):
            step.show(f"{compiling.num_done} of {blocks}")


class Progress:
    """Steps of an export: graphs are captured, host code is compiled, results are compared."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._line: Step | None = None
        self._watcher = _WATCHER.get()
        self.step = ""
        """Newest step."""
        self.num_done = self.num_steps = 0

    def captured(self, name: str) -> None:
        """An entry point was captured."""
        if self._line is None:
            self._line = Step(self._title)
        self._note(f"captured {name}", more=1, done=1)
        self._line.note(counted(self.num_done, "graph"))
        self._line.show(f"captured {name}")

    def start_lowering(self, num_jobs: int) -> None:
        """Host code of some blocks has to be compiled."""
        what = f"compiling {counted(num_jobs, 'block')} with C++"
        self._note(what, more=num_jobs)
        self._next(f"{self._title}, host code").note(counted(num_jobs, "block"))

    def lowered(self, job: Job) -> None:
        """Host code of one block is ready."""
        self._note(f"compiled {job.name}", done=1)
        if self._line is not None:
            self._line.show(f"{self.num_done} of {counted(self.num_steps, 'step')}")

    def validating(self, name: str) -> None:
        """The compiled model is compared with the reference model."""
        self._note("validating")
        self._next(f"Comparing {name} with the reference model")

    def _next(self, title: str) -> Step:
        """End the line of the step before."""
        if self._line is not None:
            self._line.end()
        self._line = Step(title)
        return self._line

    def _note(self, what: str, more: int = 0, done: int = 0) -> None:
        self.step, self.num_steps, self.num_done = what, self.num_steps + more, self.num_done + done
        if self._watcher is not None:
            self._watcher(self)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if self._line is not None:
            self._line.end(failed=kind is not None)
