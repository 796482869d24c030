"""The thread that takes the steps of an engine: its start, its pauses, and its end.

A session takes steps while requests wait or run, sleeps when there are none, and ends when it is stopped or when the
program fails. It can start again until it is destroyed.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import types
from collections.abc import Iterable, Iterator
from typing import Any

from ..runtime import rest_threads
from .engine import Engine
from .request import Request

logger = logging.getLogger(__name__)


class Session:
    """A thread, and the lock by which others change what it does; `_deliver` belongs to subclasses."""

    warmed_up = True
    """Graphs are compiled before there is a session."""

    def __init__(self, model: Any, engine: Engine) -> None:
        self.model, self.engine = model, engine
        self.background_thread_status = types.SimpleNamespace(fatal_error=None)  # transformers' place of the error
        self._changed = threading.Condition(engine.lock)
        self._thread: threading.Thread | None = None
        self._stop: str | None = None
        self._has_ended = self._is_destroyed = False
        self._pausers: list[int] = []
        """Threads that hold a pause."""
        self._is_paused = False

    def _deliver(self, requests: Iterable[Request]) -> None:
        raise NotImplementedError

    @property
    def fatal_error(self) -> Exception | None:
        """Error that ended the thread and all requests."""
        return self.background_thread_status.fatal_error

    @property
    def _takes_requests(self) -> bool:
        return not (self._stop or self._has_ended or self._is_destroyed)

    @property
    def current_batch(self) -> int:
        """Chunks and steps that have run."""
        return self.engine.counters.chunks_total + self.engine.counters.steps_total

    def warmup(self) -> None:
        """Nothing to do, see `warmed_up`."""

    def is_running(self) -> bool:
        """Return whether the thread runs."""
        return self._thread is not None and not self._has_ended

    def start(self) -> None:
        """Start the thread; requests may be waiting already."""
        if self.is_running():
            logger.warning("The manager is running already.")
            return
        if self._is_destroyed:
            raise RuntimeError("The manager was destroyed. Call init_continuous_batching() for another one.")
        rest_threads()  # from now on the new thread computes
        self._stop, self._has_ended, self.background_thread_status.fatal_error = None, False, None
        self._thread = threading.Thread(target=self._serve, name="continuous batching", daemon=True)
        self._thread.start()

    def stop(
        self,
        block: bool = True,
        timeout: float | None = None,
        keep_for_next_session: bool = False,
        hard_stop: bool = False,
    ) -> None:
        """Stop once all requests are answered.

        Args:
            block: wait for that.
            timeout: wait at most so many seconds.
            keep_for_next_session: let the model's next call of `init_continuous_batching` return this manager.
            hard_stop: fail the requests that are not answered, instead.
        """
        if self._thread is None:
            logger.warning("The manager was not started.")
            return
        if threading.get_ident() in self._pausers:
            raise RuntimeError("A manager cannot be stopped within its pause. Leave pause() first.")
        with self._changed:
            self._stop = "now" if hard_stop else "answered"
            self._changed.notify_all()
        if keep_for_next_session:
            self.model._cached_continuous_batching_manager = self
        if block:
            self.join(time.perf_counter(), timeout)

    def join(self, stop_trigger_time: float = 0.0, timeout: float | None = None) -> None:
        """Wait for the thread to end, at most `timeout` seconds; transformers logs the time since the first one."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning("The thread of continuous batching did not end in %s seconds.", timeout)

    def destroy(self) -> None:
        """Stop, and give the pool of blocks back; the manager cannot start again."""
        if self.is_running():
            self.stop(hard_stop=True)
        with self._changed:
            self._is_destroyed = True
            self._deliver(self.engine.fail_all(_stopped()))  # of one that never started
        if self.model._cached_continuous_batching_manager is self:
            self.model._cached_continuous_batching_manager = None
        self.engine.runner.close()

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Run no graphs inside; requests go on afterwards."""
        own = threading.get_ident()
        try:
            with self._changed:
                self._pausers.append(own)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_paused or not self.is_running())
            if not self.is_running():
                raise RuntimeError("Nothing to pause: the manager does not run.")
            yield
        finally:
            with self._changed:
                self._pausers.remove(own)
                self._changed.notify_all()

    def _serve(self) -> None:
        try:
            while self._wait_for_work():
                self._deliver(self.engine.step())
        except Exception as error:  # noqa: BLE001  # whoever waits for a result has to hear of it
            logger.exception("Continuous batching failed.")
            self.background_thread_status.fatal_error = error
        with self._changed:
            self._has_ended = True
            self._deliver(self.engine.fail_all(self.fatal_error or _stopped()))

    def _wait_for_work(self) -> bool:
        """Wait for a request; return False when the thread shall end."""
        with self._changed:
            while True:
                self._is_paused = bool(self._pausers)
                if self._is_paused:
                    self._changed.notify_all()
                elif self._stop == "now" or (self._stop and not self.engine.has_work):
                    return False
                elif self.engine.has_work:
                    return True
                self._changed.wait()


def _stopped() -> RuntimeError:
    return RuntimeError("The manager was stopped.")
