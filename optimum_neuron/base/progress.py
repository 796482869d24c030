"""Progress of a long task on stderr: one line for each step.

On a terminal the line of the running step is updated. In a log, each finished step is one line and nothing is repeated.
The Hub's switch turns both off.

    with Step("Converting smollm2"):
        ...

`Progress` makes such lines of the steps of an export, and `watching` reports them to a server.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import env
from .wording import counted, time_span

_HIDDEN: dict[str, tuple[int, bool]] = {}
"""Libraries whose bars are hidden: how many contexts hide them, and whether they were shown before."""
_LOCK = threading.Lock()


class Step:
    """One step. Its line stays with its time when the step ends; a step that fails leaves no line."""

    def __init__(self, title: str, *, enabled: bool = True) -> None:
        self._title, self._start_s = title, time.perf_counter()
        self._enabled = enabled and not env.progress_disabled()
        self._result = ""
        self._bar: Any = None
        if self._enabled and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=0, desc=title, bar_format="{desc} ...", leave=False)

    def show(self, detail: str) -> None:
        """Show what the step does now, on a terminal."""
        if self._bar is not None:
            self._bar.bar_format = "{desc}{postfix}, {elapsed}"
            self._bar.set_postfix_str(detail)

    def note(self, result: str) -> None:
        """Set what the line of the finished step says between title and time."""
        self._result = result

    def end(self, *, failed: bool = False) -> None:
        """End the step; a second call does nothing."""
        if self._bar is not None:
            self._bar.close()
        if self._enabled and not failed:
            parts = filter(None, (self._result, time_span(time.perf_counter() - self._start_s)))
            print(f"{self._title}: {', '.join(parts)}", file=sys.stderr, flush=True)
        self._enabled, self._bar = False, None

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        self.end(failed=kind is not None)


@contextlib.contextmanager
def hidden_bars(messages: ModuleType) -> Iterator[None]:
    """Hide the progress bars of transformers or diffusers, given the library's module `utils.logging`.

    The switch is one for the process: bars appear again when the last of all threads leaves, if they were shown before.
    """
    name = messages.__name__
    with _LOCK:
        count, shown = _HIDDEN.get(name, (0, messages.is_progress_bar_enabled()))
        _HIDDEN[name] = (count + 1, shown)
        messages.disable_progress_bar()
    try:
        yield
    finally:
        with _LOCK:
            count, shown = _HIDDEN.pop(name)
            if count > 1:
                _HIDDEN[name] = (count - 1, shown)
            elif shown:
                messages.enable_progress_bar()


_WATCHER: contextvars.ContextVar[Callable[[Progress], None] | None] = contextvars.ContextVar("watcher", default=None)


@contextlib.contextmanager
def watching(watcher: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function at each step of the exports of this thread inside."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


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

    def lowered(self, name: str) -> None:
        """Host code of one block is ready."""
        self._note(f"compiled {name}", done=1)
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
