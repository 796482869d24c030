"""The cores of one launch, which run in turns, and what its ranks posted for each other.

Each core is a thread, and one runs at a time: it runs until it waits or ends, then the next one does, so a launch has
one order of events and needs no locks. How ranks exchange is in `exchange.py`.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

Key = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Post:
    """What one rank brings to a collective."""

    opcode: str
    terms: tuple[Any, ...]
    """What all ranks of the group must have in common: sizes, dtypes, operator."""
    line: str
    tensors: tuple[torch.Tensor, ...]


class Turns:
    """Who runs."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waits: dict[int, Callable[[], bool]] = {}
        self._open: set[int] = set()
        self._errors: list[BaseException] = []

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run functions in turns, and return their results."""
        if len(bodies) == 1:
            return [bodies[0]()]
        self._open = set(range(len(bodies)))
        results: list[Any] = [None] * len(bodies)
        threads = []
        for number, body in enumerate(bodies):
            context = contextvars.copy_context()
            run = threading.Thread(target=context.run, args=(self._run, number, body, results), daemon=True)
            threads.append(run)
            with self._condition:
                run.start()
                self._condition.wait_for(functools.partial(self._has_stopped, number))
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return results

    def _run(self, number: int, body: Callable[[], Any], results: list[Any]) -> None:
        with self._condition:
            try:
                results[number] = body()
            except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that started this one
                self._errors.append(error)
            finally:
                self._open.discard(number)
                self._condition.notify_all()

    def wait(self, number: int, ready: Callable[[], bool]) -> bool:
        """Let the others run until something holds; False if it cannot, because all others wait or have ended."""
        if not self._open:
            return ready()
        self._waits[number] = ready
        self._condition.notify_all()
        self._condition.wait_for(lambda: ready() or bool(self._errors) or self._is_stuck())
        holds = ready()
        del self._waits[number]
        return holds

    def _has_stopped(self, number: int) -> bool:
        return number in self._waits or number not in self._open

    def _is_stuck(self) -> bool:
        return self._open == set(self._waits) and not any(ready() for ready in self._waits.values())


@dataclasses.dataclass
class World:
    """All ranks of one launch."""

    size: int = 1
    turns: Turns = dataclasses.field(default_factory=Turns)
    posts: dict[Key, dict[int, Post]] = dataclasses.field(default_factory=dict)
    """What ranks posted, by collective and rank."""
    done: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    """Collectives that a rank finished, so that its other physical cores need not."""
