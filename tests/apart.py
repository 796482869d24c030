"""Measures in a process of its own, so that a crash or a hang stops nothing else; for the scripts of coverage.

result = measure_apart(measure, "llama", seconds=60, failed=lambda reason: Result(...))
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

R = TypeVar("R")


def measure_apart(measure: Callable[[str], R], name: str, seconds: float, failed: Callable[[str], R]) -> R:
    """Return what `measure` returns for a name, or `failed` with the reason why it returned nothing in time."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(measure, name, sender))
    process.start()
    sender.close()
    result = failed(f"no result within {seconds:.0f} seconds")
    if receiver.poll(seconds):
        try:
            result = receiver.recv()
        except EOFError:
            process.join()
            result = failed(f"the process ended with {process.exitcode}")
    process.kill()
    process.join()
    return result


def _send(measure: Callable[[str], R], name: str, sender: Connection) -> None:
    # What is printed would tear the bar of progress.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        sender.send(measure(name))
