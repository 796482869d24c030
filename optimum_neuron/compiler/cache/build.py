"""Get a verified NEFF onto this machine: find it, download it, or have it compiled.

It joins entries and locks; the order of storage lookups and their messages are defined in `store.py`.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import CacheError, NeuronError
from ...files.atomic import disk_full, is_disk_full, write_bytes
from ...files.plain_json import canonical_json
from ..neff import open_neff
from .entries import DONE_NAME, FIELDS_NAME, NEFF_NAME, Entry, Marker, find_entry, neff_problem
from .locks import Claim, claim, clear, publish
from .requests import entry_key
from .storage import LocalStorage, RemoteStorage, Storage

_FILES = (NEFF_NAME, FIELDS_NAME, DONE_NAME)
"""Order of transfer: the marker last, so that whoever sees it sees the rest."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A verified NEFF on this machine, from a cache or just compiled; or the reason for a miss."""

    path: Path | None = None
    reason: str = ""
    marker: Marker | None = None
    """Of an entry that was found."""
    in_cache: bool = True
    """Whether the named cache holds it, not only the spool of this machine."""
    compiled: bool = False
    """Whether this process compiled it."""
    leftover: str | None = None
    """What a killed process left in its place."""
    note: str | None = None
    """Why the named cache could not store it."""


def usable(storage: Storage, name: str, key: str) -> Entry | str:
    """Return the complete entry, or the reason for a miss; the NEFF itself is not read."""
    entry = find_entry(storage, name)
    if entry is None:
        return "no such entry"
    if entry.state != "success" or entry.marker is None:
        return f"the entry is incomplete ({entry.reason})"
    if entry.marker.key != key:
        return "another request has the same short key"
    return entry


def fetch_local(storage: LocalStorage, name: str, key: str) -> Found:
    """Find an entry in a folder and verify its NEFF."""
    entry = usable(storage, name, key)
    if isinstance(entry, str):
        return Found(reason=entry)
    assert entry.marker is not None
    path = storage.root / name / NEFF_NAME
    if problem := neff_problem(path, entry.marker):
        return Found(reason=problem)
    return Found(path=path, reason=f"compiled {entry.marker.age} ago", marker=entry.marker)


def fetch_remote(storage: RemoteStorage, spool: LocalStorage, name: str, key: str, timeout_s: float | None) -> Found:
    """Find an entry behind fsspec, download it into the spool unless it is there, and verify it."""
    entry = usable(storage, name, key)
    if isinstance(entry, str):
        return Found(reason=entry)
    assert entry.marker is not None
    local = fetch_local(spool, name, key)
    if local.path is not None and local.marker == entry.marker:
        return Found(path=local.path, reason=f"{local.reason}, downloaded before", marker=entry.marker)
    with claim(spool.root, name, timeout_s=timeout_s) as right:
        with _full_disk(spool.root / name / NEFF_NAME, right.folder, entry.marker.neff_size_bytes):
            for file in _FILES:
                storage.download(f"{name}/{file}", right.folder / file)
        if problem := neff_problem(right.folder / NEFF_NAME, entry.marker):
            return Found(reason=problem)
        publish(spool.root, name, right.folder)
    reason = f"compiled {entry.marker.age} ago, downloaded"
    return Found(path=spool.root / name / NEFF_NAME, reason=reason, marker=entry.marker)


def build(
    storage: LocalStorage,
    name: str,
    fields: Mapping[str, Any],
    produce: Callable[[Path], None],
    timeout_s: float | None,
) -> Found:
    """Compile an entry once, however many processes ask for it at the same time; `timeout_s` as in `claim`."""
    key = entry_key(fields)
    with claim(storage.root, name, timeout_s=timeout_s) as right:
        ready = fetch_local(storage, name, key)
        if ready.path is not None:
            return ready
        with _full_disk(storage.root / name / NEFF_NAME, right.folder):
            _compile(right, key, fields, produce)
            publish(storage.root, name, right.folder)
    return Found(path=storage.root / name / NEFF_NAME, compiled=True, leftover=right.leftover)


def share(spool: LocalStorage, storage: RemoteStorage, name: str) -> None:
    """Upload an entry; an older one under that name stops being valid before its files change."""
    storage.remove(f"{name}/{DONE_NAME}")
    storage.upload_all(entry_files(spool, name))


def entry_files(place: LocalStorage, name: str) -> dict[str, Path]:
    """Files of an entry by their path in any storage, in the order of transfer."""
    return {f"{name}/{file}": place.root / name / file for file in _FILES}


def _compile(right: Claim, key: str, fields: Mapping[str, Any], produce: Callable[[Path], None]) -> None:
    path = right.folder / NEFF_NAME
    produce(path)
    clear(right.folder, keep=path)
    with open_neff(path) as neff:
        marker = Marker(
            key=key,
            neff_hash=neff.header.hash.hex(),
            neff_size_bytes=path.stat().st_size,
            created_unix_s=int(time.time()),
        )
    write_bytes(right.folder / FIELDS_NAME, canonical_json(fields, what=FIELDS_NAME), error=CacheError)
    write_bytes(right.folder / DONE_NAME, marker.to_json(), error=CacheError)


@contextlib.contextmanager
def _full_disk(path: Path, folder: Path, needed_bytes: int = 0) -> Iterator[None]:
    """Clean up after a full disk, and raise a `CacheError` with the bytes needed and free."""
    try:
        yield
    except Exception as error:
        if not is_disk_full(error):
            raise
        written_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        reported_bytes = error.details.get("needed_bytes", 0) if isinstance(error, NeuronError) else 0
        shutil.rmtree(folder)
        raise disk_full(CacheError, path=path, needed_bytes=max(needed_bytes, written_bytes, reported_bytes)) from error
