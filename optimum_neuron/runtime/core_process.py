"""The claims of this process on simulated cores, safe among threads, finalizers and forks.

It knows the cores that this process has locked and their purpose; the choice of cores is in `core_choice.py`.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import core_files
from .core_choice import Cores


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One claim."""

    folder: Path
    """Folder of the instance's locks."""
    core_ids: Cores
    model: str | None
    """None where the cores are kept for models to come."""
    record: Path
    """File that other processes read."""


class Process:
    """All claims of this process.

    Finalizers may run at any moment, also while this very thread holds the mutex. So `release` never waits for it:
    where it is held, its holder frees the cores before letting go.
    """

    def __init__(self) -> None:
        self.claims: dict[int, Entry] = {}
        """By token."""
        self.reserved: dict[Path, Cores] = {}
        """Cores that NEURON_RT_NUM_CORES keeps, by folder."""
        self.num_in_groups: dict[Path, int] = collections.defaultdict(int)
        """Models that were loaded into groups of NEURONCORE_GROUP_SIZES, by folder."""
        self.last: dict[Path, int] = {}
        """The core given out last, by folder."""
        self._mutex = threading.Lock()
        self._locks: dict[tuple[Path, int], int] = {}
        self._tokens = itertools.count(1)
        self._changed = False

    @contextlib.contextmanager
    def alone(self, folder: Path) -> Iterator[None]:
        """Keep other threads and processes from touching claims on the instance; unused locks are freed at the end."""
        try:
            with self._mutex, core_files.exclusive(folder):
                try:
                    yield
                finally:
                    self._close_unused()
        finally:
            self._sweep()

    def take(self, folder: Path, placements: Sequence[Cores]) -> Cores | None:
        """Lock the first placement that no other process has a part in; call it within `alone`."""
        return next((cores for cores in placements if all(self._lock(folder, core) for core in cores)), None)

    def add(self, folder: Path, core_ids: Cores, model: str | None) -> int:
        """Register a claim on cores that are taken, and return its token; call it within `alone`."""
        token = next(self._tokens)
        record = folder / f"{os.getpid()}-{token}.json"
        core_files.write_record(record, core_ids, model)
        self.claims[token] = Entry(folder=folder, core_ids=core_ids, model=model, record=record)
        return token

    def release(self, token: int) -> None:
        """Forget a claim; cores without any are freed. An unknown token means that it is done already."""
        entry = self.claims.pop(token, None)
        if entry is None:
            return
        self._changed = True
        # The file system may have become read-only; a record whose cores are free is ignored.
        with contextlib.suppress(OSError):
            entry.record.unlink(missing_ok=True)
        self._sweep()

    def loads(self, folder: Path) -> collections.Counter[int]:
        """Number of models by core."""
        entries = list(self.claims.values())
        return collections.Counter(
            core for entry in entries if entry.folder == folder and entry.model is not None for core in entry.core_ids
        )

    def own(self, folder: Path) -> set[int]:
        """Cores that this process has locked; call it within `alone`."""
        return {core for place, core in self._locks if place == folder}

    def close(self) -> None:
        """Release everything, at exit."""
        for token in list(self.claims):
            self.release(token)

    def register_forks(self) -> None:
        """Let forks wait until no thread is in the middle of a change, and children begin without claims."""
        os.register_at_fork(
            before=self._mutex.acquire, after_in_parent=self._mutex.release, after_in_child=self._forget
        )

    def _forget(self) -> None:
        """Forget everything, in a forked child: the claims are the parent's.

        The inherited descriptors have to go, or the cores would stay locked for as long as the child outlives its
        parent. Closing a copy of a descriptor does not unlock.
        """
        for descriptor in self._locks.values():
            os.close(descriptor)
        for state in (self.claims, self.reserved, self.last, self._locks):
            state.clear()
        self._mutex.release()

    def _lock(self, folder: Path, core_id: int) -> bool:
        if (folder, core_id) not in self._locks:
            descriptor = core_files.lock_core(folder, core_id)
            if descriptor is None:
                return False
            self._locks[folder, core_id] = descriptor
        return True

    def _close_unused(self) -> None:
        self._changed = False
        used = {(entry.folder, core) for entry in list(self.claims.values()) for core in entry.core_ids}
        for key in [key for key in self._locks if key not in used]:
            os.close(self._locks.pop(key))

    def _sweep(self) -> None:
        # The loop is for a release between the holder's last look at `_changed` and its letting go of the mutex.
        while self._changed and self._mutex.acquire(blocking=False):
            try:
                self._close_unused()
            finally:
                self._mutex.release()


PROCESS = Process()
atexit.register(PROCESS.close)
PROCESS.register_forks()
