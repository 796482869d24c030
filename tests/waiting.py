"""Waiting for events of other threads and processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


def soon(look: Callable[[], Any]) -> Any:
    """The first true answer of `look`, asked again and again; an assertion fails where there is none for a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := look()):
        assert time.monotonic() < deadline, f"{look} still says {answer!r}"
        time.sleep(0.02)
    return answer


def in_threads(*calls: Callable[[], object]) -> None:
    """Run calls concurrently, each in a separate thread, until all have ended."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
