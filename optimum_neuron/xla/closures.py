"""Functions that run after the next step: `xm.add_step_closure`.

A script adds them to print or to log tensors of a step without cutting its graph: they run after the next `sync`, in
the order in which they were added. With `run_async` a thread runs them, and training goes on.

    >>> add_step_closure(print, ("step", 1))
    >>> run_step_closures()
    step 1
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

_lock = threading.Lock()
_waiting: list[Callable[[], Any]] = []
_waiting_async: list[Callable[[], Any]] = []
_thread: ThreadPoolExecutor | None = None
_running: list[Future[Any]] = []


def add_step_closure(closure: Callable[..., Any], args: tuple[Any, ...] = (), run_async: bool = False) -> None:
    """Call a function after the next `sync`.

    Args:
        closure: the function.
        args: its arguments; tensors have their values of that step then.
        run_async: call it in another thread, one function after the other.
    """
    with _lock:
        (_waiting_async if run_async else _waiting).append(lambda: closure(*args))


def run_step_closures() -> None:
    """Run the functions that were added since the last step.

    Raises:
        RuntimeError: one that ran in the thread before failed.
    """
    with _lock:
        later, now = _waiting_async[:], _waiting[:]
        _waiting_async.clear()
        _waiting.clear()
    if later:
        _check_running()
        with _lock:
            _running.extend(_executor().submit(closure) for closure in later)
    for closure in now:
        closure()


def _executor() -> ThreadPoolExecutor:
    global _thread
    if _thread is None:
        _thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="step_closures")
    return _thread


def _check_running() -> None:
    """Raise what a function of an earlier step raised, once."""
    with _lock:
        finished = [future for future in _running if future.done()]
        _running[:] = [future for future in _running if not future.done()]
    failed = next((error for future in finished if (error := future.exception()) is not None), None)
    if failed is not None:
        raise RuntimeError("A step closure that ran asynchronously failed in an earlier step.") from failed
