"""One builder per entry: a lock of the operating system and a private folder to build in.

The lock is freed by the kernel when its holder dies, however it dies. The build folder has a fixed name per entry and
belongs to the holder of the lock, so leftovers of a killed process are removed by the next one. It does not depend on
the build.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ...base import env
from ...errors import CacheError
from ...files.atomic import disk_full, is_disk_full, sync_folder
from ...files.plain_json import parse_json
from .storage import LOCKS_FOLDER

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
_OWNER_NAME = "owner.json"
_BLOCK_BYTES = 4096
_POLL_S = 0.1

logger = logging.getLogger(__name__)


class NotWritableError(CacheError):
    """The cache may be read but not written; internal, turned into a reason by the store."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The exclusive right to build one entry."""

    folder: Path
    """Empty folder to build in, on the same disk as the entry."""
    waited: bool
    """Whether another process held the lock first."""
    leftover: str | None
    """Leftovers of a killed process, removed by now."""


@contextlib.contextmanager
def claim(root: Path, name: str, *, timeout_s: float | None = None) -> Iterator[Claim]:
    """Hold the right to build an entry; the build folder is gone afterwards unless it was published.

    Another process is waited for at most `timeout_s` seconds; None waits for as long as it takes.
    """
    folder = build_folder(root, name)
    with contextlib.ExitStack() as stack:
        try:
            lock = FileLock(_lock_path(root, name))
            env.make_home()
            _lock_path(root, name).parent.mkdir(parents=True, exist_ok=True)
            waited = _acquire(lock, folder, name, timeout_s)
            stack.callback(lock.release)
            leftover = None
            if folder.exists():
                leftover = f"{_owner(folder)} ended in the middle of its compile"
                shutil.rmtree(folder)
            folder.mkdir(parents=True)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            owner = {"pid": os.getpid(), "host": socket.gethostname()}
            (folder / _OWNER_NAME).write_text(json.dumps(owner))
        except CacheError:
            raise
        except OSError as error:
            raise _unusable(root, error) from error
        yield Claim(folder=folder, waited=waited, leftover=leftover)


def clear(folder: Path, *, keep: Path) -> None:
    """Remove intermediate files of a compiler, so that only the result is published."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path not in (keep, folder / _OWNER_NAME):
            path.unlink()


def publish(root: Path, name: str, folder: Path) -> None:
    """Move a built entry to its place; the caller holds the claim."""
    place = root / name
    try:
        (folder / _OWNER_NAME).unlink()
        for path in folder.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        sync_folder(folder)
        if place.exists():
            # Without its marker a reader that comes now sees an incomplete entry and waits for the lock.
            (place / "model.done").unlink(missing_ok=True)
            shutil.rmtree(place)
        os.replace(folder, place)
        sync_folder(place.parent)
    except OSError as error:
        message = f"The finished entry cannot be moved to {place}: {error}."
        raise CacheError(message, hint="Check the disk of the cache.") from error


def is_locked(root: Path, name: str) -> bool:
    """Return whether some process is building an entry right now."""
    path = _lock_path(root, name)
    if not path.exists() or not os.access(path, os.W_OK):
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True


@contextlib.contextmanager
def removing(root: Path, name: str) -> Iterator[bool]:
    """Keep builders away from an entry while it is removed; False when one is at work already."""
    path = _lock_path(root, name)
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path, timeout=0))
            free = True
        except Timeout:
            free = False
        except OSError as error:
            raise _unusable(root, error) from error
        yield free


def build_folder(root: Path, name: str) -> Path:
    """Build folder of an entry: hidden, next to the entry."""
    version, _, module = name.partition("/")
    return root / version / f".{module}.building"


def _lock_path(root: Path, name: str) -> Path:
    return root / LOCKS_FOLDER / f"{name.rpartition('/')[2]}.lock"


def _acquire(lock: FileLock, folder: Path, name: str, timeout_s: float | None) -> bool:
    try:
        lock.acquire(timeout=0)
        return False
    except Timeout:
        logger.info("waiting for %s, which compiles %s", _owner(folder), name)
    try:
        lock.acquire(timeout=-1 if timeout_s is None else timeout_s, poll_interval=_POLL_S)
    except Timeout as error:
        message = f"{_owner(folder)} has been compiling {name} for {timeout_s} s or longer."
        hint = "Wait for that process, or end it, which frees its lock."
        raise CacheError(message, hint=hint, entry=name, timeout_s=timeout_s, owner=_owner(folder)) from error
    return True


def _owner(folder: Path) -> str:
    try:
        owner = parse_json((folder / _OWNER_NAME).read_text())
        return f"process {owner['pid']} on {owner['host']}"
    # The file appears and goes with the build; without it the sentence is only less precise.
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _unusable(root: Path, error: OSError) -> CacheError:
    if is_disk_full(error):
        full = disk_full(CacheError, path=root / LOCKS_FOLDER, needed_bytes=_BLOCK_BYTES)
        assert isinstance(full, CacheError)
        return full
    kind = NotWritableError if error.errno in _READ_ONLY else CacheError
    message = f"The compile cache {root} cannot be written: {error}."
    return kind(message, hint="Make the folder writable or choose another one.", cache=str(root))
