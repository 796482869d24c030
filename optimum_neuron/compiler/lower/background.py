"""Compile host code in the background, so that a model answers before the C++ compiler has finished.

One worker process with a low priority compiles one program after the other. Finished code is in the store at once, so a
process that ends early loses only the file that is being compiled. This module does not depend on programs or models.

    compiling = compile_in_background(jobs)
    compiling.on_end(lambda: ...)      # called in a thread of this module
    compiling.wait(timeout_s=60)
    with compile_later():              # nothing begins to compile inside
        validate()
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from .unit import Job

logger = logging.getLogger(__name__)

NICENESS = 10
"""Added to the niceness of the worker and its C++ compilers: on a busy core they get about a tenth of the time."""


class Compiling:
    """Jobs that are being compiled."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = tuple(jobs)
        self.num_done = 0
        """Jobs whose code is in the store."""
        self.failures: list[str] = []
        """Why jobs failed; final once it has ended."""
        self.cancelled = False
        """Whether it ended because this process ends."""
        self.seconds: float | None = None
        """Time from the beginning of the first job to the end."""
        self._pid = os.getpid()
        self._started = time.perf_counter()
        self._ended = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Measure the time from now on."""
        self._started = time.perf_counter()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; return whether it has come. A forked child cannot see it, and does not wait."""
        return self._ended.wait(timeout_s) if os.getpid() == self._pid else self._ended.is_set()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have a function called at the end, or now where that has come."""
        with self._lock:
            if self.seconds is None:
                self._callbacks.append(callback)
                return
        callback()

    def end(self, failures: Sequence[str] = (), *, cancelled: bool = False) -> None:
        """Call the callbacks and wake the waiting threads."""
        self.failures += failures
        self.cancelled = cancelled
        with self._lock:
            self.seconds = time.perf_counter() - self._started
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # a thread has no caller that could catch it
                logger.exception("Compiled host code could not be taken into use.")
        self._ended.set()


class _Service:
    """The thread that feeds the worker, and the worker."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Compiling] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._worker: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._num_holds, self._may_begin = 0, threading.Event()
        self._may_begin.set()

    def hold(self, change: int) -> None:
        """Begin nothing while there are holds; `change` is 1 for one more, and -1 for one less."""
        with self._lock:
            self._num_holds += change
            if self._num_holds and not self._closed:
                self._may_begin.clear()
            else:
                self._may_begin.set()

    def submit(self, compiling: Compiling) -> None:
        with self._lock:
            self._waiting.put(compiling)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="host code", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        while True:
            self._may_begin.wait()
            with self._lock:
                if self._waiting.empty() or self._closed:
                    _stop(self._worker)
                    self._worker = self._thread = None
                    return
            compiling = self._waiting.get()
            compiling.begin()
            failures = self._compile(compiling)
            compiling.end(failures, cancelled=self._closed)

    def _compile(self, compiling: Compiling) -> list[str]:
        try:
            with self._lock:
                if self._closed:
                    return ["the process ends"]
                if self._worker is None or self._worker.poll() is not None:
                    self._worker = _started_worker()
                worker = self._worker
            assert worker.stdin is not None and worker.stdout is not None
            for job in compiling.jobs:
                worker.stdin.write(json.dumps(job.to_dict()) + "\n")
            worker.stdin.write('{"end": true}\n')
            worker.stdin.flush()
            for line in worker.stdout:
                answer = json.loads(line)
                if "end" in answer:
                    return list(answer["failures"])
                compiling.num_done += 1
        except (BrokenPipeError, ValueError, OSError) as error:
            return [f"The process that compiles host code failed: {error}."]
        return [
            f"The process that compiles host code ended with exit code {worker.wait()}; -9 means that the system ran "
            "out of memory. Close other programs, or use -O1, which compiles nothing."
        ]

    def close(self) -> None:
        """End the worker, also while it compiles, and the thread, which closes the pipes that it reads and writes."""
        with self._lock:
            self._closed = True
            self._may_begin.set()
            worker, thread = self._worker, self._thread
        if worker is not None:
            _end(worker)
        if thread is not None and thread is not threading.current_thread():
            thread.join()


def _started_worker() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"{__package__}.worker", str(torch.get_num_threads()), str(NICENESS)]
    root = str(Path(__file__).resolve().parents[3])
    return subprocess.Popen(
        command,
        text=True,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for this process, which ends the worker
    )


def _end(worker: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, 15)
    worker.wait()


def _stop(worker: subprocess.Popen[str] | None) -> None:
    """End the worker and close its pipes; no other thread may use them."""
    if worker is None:
        return
    _end(worker)
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # a dead worker did not read its last job
                pipe.close()


_service = _Service()


def compile_in_background(jobs: Sequence[Job]) -> Compiling:
    """Compile subprograms into the store, with a low priority, after earlier requests."""
    compiling = Compiling(jobs)
    _service.submit(compiling)
    return compiling


@contextlib.contextmanager
def compile_later() -> Iterator[None]:
    """Hold back compiles while the block runs, because it needs the cores. A compile that has begun is not stopped.

    Threads of a product wait for each other, so a compiler beside them costs more than its share, at any priority.
    """
    service = _service
    service.hold(1)
    try:
        yield
    finally:
        service.hold(-1)


def _after_fork() -> None:
    """A child has neither the thread nor the pipes."""
    global _service
    _service = _Service()


atexit.register(lambda: _service.close())
os.register_at_fork(after_in_child=_after_fork)
