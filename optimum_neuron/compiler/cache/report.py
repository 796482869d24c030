"""Contents of a cache, and pruning.

It reads one listing of a storage and the small files of its entries. Entries that another process is building are left
alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ..version import COMPILER_VERSION
from . import requests
from .entries import Entry, State, find_entry, list_entries, names_in, unfinished
from .explain import summary
from .locks import build_folder, is_locked, removing
from .storage import LocalStorage, Storage

_FRESH_S = 3600
"""Files younger than this may belong to a process at work, where no lock can tell."""
_DAY_S = 86400


@dataclass(frozen=True, kw_only=True)
class PruneLimits:
    """Limits of `prune`; see `CompileCache.prune` for each."""

    older_than_days: float | None = None
    max_size_bytes: int | None = None
    incomplete: bool = True
    old_versions: bool = False

    def __post_init__(self) -> None:
        limits = {"older_than_days": self.older_than_days, "max_size_bytes": self.max_size_bytes}
        negative = {name: value for name, value in limits.items() if value is not None and value < 0}
        if negative:
            text = " and ".join(f"{name} is {value}" for name, value in negative.items())
            raise ConfigError(f"{text}, but limits are not negative.", hint="Pass 0 or more.", options=negative)


def all_entries(storage: Storage, files: dict[str, int]) -> list[Entry]:
    """Every entry with its state, including those being built, sorted by name."""
    entries = {entry.name: entry for entry in list_entries(storage, files, names_in(files))}
    building = unfinished(files)
    for name in {*entries, *building}:
        entry = entries.get(name)
        if entry is not None and entry.state == "success":
            continue
        size_bytes = building.get(name, 0) + (entry.size_bytes if entry else 0)
        if isinstance(storage, LocalStorage) and is_locked(storage.root, name):
            entries[name] = Entry(name=name, state="locked", reason="a process is compiling it", size_bytes=size_bytes)
        else:
            reason = entry.reason if entry else "a compile did not end"
            entries[name] = Entry(name=name, state="incomplete", reason=reason, size_bytes=size_bytes)
    return [entries[name] for name in sorted(entries)]


def status(storage: Storage) -> dict[str, Any]:
    """Describe a storage: its address, its entries and their states; plain data."""
    files = storage.files()
    entries = all_entries(storage, files)
    return {
        "url": storage.url,
        "num_entries": len(entries),
        "num_requests": len(requests.index_files(files, requests.FOLDER)),
        "size_bytes": sum(entry.size_bytes for entry in entries),
        "entries": [_describe(entry) for entry in entries],
    }


def prune(storage: Storage, limits: PruneLimits, *, dry_run: bool) -> list[dict[str, Any]]:
    """Remove entries beyond the limits, and requests that lead nowhere.

    Returns:
        One item for each thing removed: name, reason and size in bytes.
    """
    files = storage.files()
    entries = all_entries(storage, files)
    doomed = _doomed(storage, entries, limits)
    remaining = {entry.name for entry in entries} - set(doomed)
    useless = {path: "leads to no entry" for path in _dangling(storage, files, remaining)}
    useless |= {path: "left by a killed process" for path in _stale_temporaries(storage, files)}
    sizes = {entry.name: entry.size_bytes for entry in entries}
    if not dry_run:
        states = {entry.name: entry.state for entry in entries}
        doomed = {name: reason for name, reason in doomed.items() if _remove(storage, name, states[name])}
        for path in useless:
            storage.remove(path)
    return [
        *({"name": name, "reason": reason, "size_bytes": sizes[name]} for name, reason in doomed.items()),
        *({"name": path, "reason": reason, "size_bytes": files[path]} for path, reason in useless.items()),
    ]


def _describe(entry: Entry) -> dict[str, Any]:
    created = entry.marker.created_unix_s if entry.marker else None
    return {
        "name": entry.name,
        "state": entry.state,
        "reason": entry.reason,
        "size_bytes": entry.size_bytes,
        "key": entry.marker.key if entry.marker else None,
        "created_unix_s": created,
        "age_s": None if created is None else max(0, int(time.time() - created)),
        "summary": summary(entry.fields) if entry.fields is not None else None,
        "fields": dict(entry.fields) if entry.fields is not None else None,
    }


def _doomed(storage: Storage, entries: Iterable[Entry], limits: PruneLimits) -> dict[str, str]:
    doomed: dict[str, str] = {}
    complete: list[tuple[int, Entry]] = []
    for entry in entries:
        if entry.marker is not None:
            complete.append((entry.marker.created_unix_s, entry))
        elif limits.incomplete and entry.state == "incomplete" and not _uploading(storage, entry.name):
            doomed[entry.name] = f"incomplete: {entry.reason}"
    complete.sort(key=lambda item: (item[0], item[1].name))
    left_bytes = sum(entry.size_bytes for _, entry in complete)
    for created_unix_s, entry in complete:
        age_days = (time.time() - created_unix_s) / _DAY_S
        if limits.old_versions and not entry.name.startswith(f"neuronxcc-{COMPILER_VERSION}/"):
            doomed[entry.name] = f"of another compiler than {COMPILER_VERSION}"
        elif limits.older_than_days is not None and age_days > limits.older_than_days:
            doomed[entry.name] = f"{age_days:.1f} days old"
        elif limits.max_size_bytes is not None and left_bytes > limits.max_size_bytes:
            doomed[entry.name] = f"oldest, while the cache has {left_bytes:,} bytes"
        else:
            continue
        left_bytes -= entry.size_bytes
    return doomed


def _uploading(storage: Storage, name: str) -> bool:
    """Return whether another machine may be writing an entry: remote storage has no locks, so recent files stay."""
    if isinstance(storage, LocalStorage):
        return False
    times = [storage.modified_unix_s(f"{name}/{file}") for file in ("model.neff", "fields.json")]
    return any(moment is not None and time.time() - moment < _FRESH_S for moment in times)


def _remove(storage: Storage, name: str, state: State) -> bool:
    """Remove an entry that is still in the state it was judged in; whether it went."""
    if not isinstance(storage, LocalStorage):
        storage.remove(name)
        return True
    with removing(storage.root, name) as free:
        entry = find_entry(storage, name)
        if not free or (entry.state if entry else "incomplete") != state:
            return False
        storage.remove(name)
        storage.remove(build_folder(storage.root, name).relative_to(storage.root).as_posix())
    return True


def _stale_temporaries(storage: Storage, files: Iterable[str]) -> list[str]:
    times = {path: storage.modified_unix_s(path) for path in requests.index_files(files, ending=".tmp")}
    return [path for path, moment in times.items() if moment is not None and time.time() - moment > _FRESH_S]


def _dangling(storage: Storage, files: Iterable[str], remaining: set[str]) -> list[str]:
    contents = storage.read_many(requests.index_files(files))
    targets = {path: requests.parse(data) for path, data in contents.items()}
    return [path for path, target in sorted(targets.items()) if target is None or target.entry not in remaining]
