"""One progress bar for an export: entry points captured, blocks compiled. Disabled by the Hub's switch.

`watching` tells a server of the same steps.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .. import env

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
    from tqdm.auto import tqdm

    form = "{desc}: {n}/{total} blocks, {elapsed}"
    with tqdm(total=len(compiling.jobs), desc=title, disable=env.progress_disabled(), bar_format=form) as bar:
        while not compiling.wait(0.5):
            bar.n = compiling.num_done
            bar.refresh()
        bar.n = compiling.num_done


class Progress:
    """A tqdm bar on stderr that appears with the first step."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._bar: Any = None
        self._watcher = _WATCHER.get()
        self.step = ""
        """Newest step."""
        self.num_done = self.num_steps = 0

    def _step(self, what: str, more: int = 1, *, done: int = 0) -> None:
        from tqdm.auto import tqdm

        self._note(what, more, done)
        if self._bar is None:
            self._bar = tqdm(
                total=0,
                desc=self._title,
                unit="step",
                disable=env.progress_disabled(),
                bar_format="{desc}: {n}/{total} steps, {elapsed}{postfix}",
            )
        if more:
            self._bar.total += more
        self._bar.set_postfix_str(what)

    def captured(self, name: str) -> None:
        """An entry point was captured."""
        self._step(f"captured {name}", done=1)
        self._bar.update()

    def start_lowering(self, num_jobs: int) -> None:
        """Host code of some blocks has to be compiled."""
        self._step(f"compiling {num_jobs} blocks with C++", more=num_jobs)

    def lowered(self, job: Job) -> None:
        """Host code of one block is ready."""
        self._step(f"compiled {job.name}", more=0, done=1)
        self._bar.update()

    def say(self, what: str) -> None:
        """Show the current step."""
        self._note(what)
        if self._bar is not None:
            self._bar.set_postfix_str(what)

    def _note(self, what: str, more: int = 0, done: int = 0) -> None:
        self.step, self.num_steps, self.num_done = what, self.num_steps + more, self.num_done + done
        if self._watcher is not None:
            self._watcher(self)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.close()
