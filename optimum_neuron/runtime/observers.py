"""Observers of the simulated cores, for calls that are counted only while somebody watches.

Loaded programs count every call in Python. Eager operators of the torch device are too many and too short for that: a
source counts them outside of Python while a profile is recorded or a tool reads the status of this process, and adds
them to its tracks (`timeline.py`) on request. This module knows no device.

    with OBSERVERS.watching():
        run()
        OBSERVERS.collect()
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Protocol


class Source(Protocol):
    """Counts calls while it is watched."""

    def watch(self, watched: bool) -> None:
        """Begin or stop counting."""

    def collect(self) -> None:
        """Add the counts since the last time to its tracks."""


class Observers:
    """The observers and the sources of this process."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._watching: set[object] = set()
        self._lock = threading.RLock()

    def add(self, source: Source) -> None:
        """Add a source; it begins at once if an observer is registered already."""
        with self._lock:
            self._sources.append(source)
            source.watch(bool(self._watching))

    def watch(self, observer: object, watching: bool = True) -> None:
        """Say whether an observer watches from now on."""
        with self._lock:
            before = bool(self._watching)
            (self._watching.add if watching else self._watching.discard)(observer)
            if bool(self._watching) != before:
                for source in self._sources:
                    source.watch(not before)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch until the end of the block."""
        observer = object()
        self.watch(observer)
        try:
            yield
        finally:
            self.watch(observer, False)

    def collect(self) -> None:
        """Let every source add its counts."""
        with self._lock:
            for source in self._sources:
                source.collect()

    def forget(self) -> None:
        """Reset in a forked child; a lock that another thread of the parent held is not released there."""
        self._watching, self._lock = set(), threading.RLock()


OBSERVERS = Observers()
os.register_at_fork(after_in_child=OBSERVERS.forget)
