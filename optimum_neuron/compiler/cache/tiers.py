"""Two places as one cache: the one the user named, and the spool of this machine behind it.

A local cache is used in place. Downloads of a remote one, and results that a read-only one cannot take, are kept in
the spool, a folder with the same layout. It says in words when the named cache could not be used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ... import env
from ...errors import CacheError, refusal
from . import requests
from .build import Built, Found, build, fetch_local, fetch_remote, share, usable
from .entries import Entry, list_entries, names_in
from .locks import NotWritableError
from .storage import LocalStorage, open_storage

_NUM_COMPARED = 500

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A NEFF that was compiled, or that another process compiled meanwhile."""

    built: Built
    """The NEFF."""
    in_cache: bool
    """Whether the named cache holds it, not only the spool."""
    note: str | None
    """Why it could not be stored there."""


class Tiers:
    """The named cache and its spool."""

    def __init__(self, url: str, spool: Path | None, timeout_s: float | None) -> None:
        self.storage = open_storage(url)
        folder = hashlib.sha256(self.storage.url.encode()).hexdigest()[:16]
        self.spool = LocalStorage(spool if spool is not None else env.home() / "neff-spool" / folder)
        self._timeout_s = timeout_s

    def usable(self, name: str, key: str) -> Entry | str:
        """The complete entry of either place, or why there is none."""
        entry = usable(self.storage, name, key)
        if isinstance(entry, Entry):
            return entry
        spooled = usable(self.spool, name, key)
        return spooled if isinstance(spooled, Entry) else entry

    def fetch(self, name: str, key: str) -> Found:
        """A verified NEFF of either place on this machine, or why there is none."""
        storage = self.storage
        if isinstance(storage, LocalStorage):
            found = fetch_local(storage, name, key)
        else:
            found = self._in_spool(lambda: fetch_remote(storage, self.spool, name, key, self._timeout_s))
        if found.path is not None:
            return found
        spooled = fetch_local(self.spool, name, key)
        if spooled.path is None:
            return found
        in_cache, note = self._share(name)
        reason = f"{spooled.reason}, kept in {self.spool.root} (in the cache: {found.reason})"
        return replace(spooled, in_cache=in_cache, reason=reason if note is None else f"{reason}; {note}")

    def compile(self, name: str, fields: Mapping[str, Any], produce: Callable[[Path], None]) -> Stored:
        """Compile an entry into the cache, or into the spool when the cache cannot take it."""
        if isinstance(self.storage, LocalStorage):
            try:
                built = build(self.storage, name, fields, produce, self._timeout_s)
            except NotWritableError as error:
                note = f"not stored in the cache ({error.__cause__}), kept in {self.spool.root}"
            else:
                return Stored(built=built, in_cache=True, note=None)
            built = self._in_spool(lambda: build(self.spool, name, fields, produce, self._timeout_s))
            return Stored(built=built, in_cache=False, note=note)
        built = self._in_spool(lambda: build(self.spool, name, fields, produce, self._timeout_s))
        in_cache, share_note = self._share(name)
        return Stored(built=built, in_cache=in_cache, note=share_note)

    def record(self, request: Mapping[str, Any], target: requests.Target) -> str | None:
        """Remember where a request leads, in the spool if need be; what went wrong in words, or None."""
        for place in (self.storage, self.spool):
            try:
                requests.record(place, request, target)
                return None
            except CacheError as error:
                note = f"the request could not be recorded ({error.__cause__ or error})"
        return note

    def target(self, request: Mapping[str, Any]) -> requests.Target | None:
        """Where a request leads."""
        return requests.find(self.storage, request) or requests.find(self.spool, request)

    def others(self, name: str, *, limit: int | None = _NUM_COMPARED) -> list[Entry]:
        """Other entries to compare a request with, those of its own compiler version first when there are many."""
        version = name.partition("/")[0] + "/"
        entries: dict[str, Entry] = {}
        for place in (self.spool, self.storage):
            files = place.files()
            names = sorted(names_in(files), key=lambda other: (not other.startswith(version), other))
            entries.update((entry.name, entry) for entry in list_entries(place, files, names[:limit]))
        entries.pop(name, None)
        return list(entries.values())

    def _share(self, name: str) -> tuple[bool, str | None]:
        if isinstance(self.storage, LocalStorage):
            return False, None
        try:
            share(self.spool, self.storage, name)
        except CacheError as error:
            return False, f"not stored in the cache ({error.__cause__}), kept in {self.spool.root}"
        return True, None

    def _in_spool(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except NotWritableError as error:
            raise CacheError(
                refusal(
                    asked=f"keep a NEFF in {self.spool.root}",
                    found=str(error.__cause__),
                    why=f"the compile cache {self.storage.url} is remote or read-only, so a local folder is needed too",
                    do="set OPTIMUM_NEURON_HOME to a folder that may be written",
                )
            ) from error
