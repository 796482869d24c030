"""Places as one cache: the one the user named, the spool of this machine behind it, and one shared with others.

A local cache is used in place. Downloads of a remote one, and results that a read-only one cannot take, are kept in the
spool, a folder with the same layout. The shared cache is queried last and never written to; its entries are copied to
this machine. It says in words when the named cache could not be used.

A remote place that cannot be read (no network, no permission) has nothing for a compile: one warning, and it compiles.
Commands that list a cache get the error.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ...base import env
from ...errors import CacheError
from . import requests
from .build import Found, build, fetch_local, fetch_remote, share, usable
from .entries import Entry, list_entries, names_in
from .locks import NotWritableError
from .storage import LocalStorage, RemoteStorage, Storage, open_remote, open_storage

logger = logging.getLogger(__name__)

_NUM_COMPARED = 500

T = TypeVar("T")


class Tiers:
    """The named cache, its spool, and the shared cache if there is one."""

    def __init__(self, url: str, spool: Path | None, timeout_s: float | None, shared: str | None = None) -> None:
        self.storage = open_storage(url)
        self.shared = open_remote(shared) if shared is not None else None
        folder = hashlib.sha256(self.storage.url.encode()).hexdigest()[:16]
        self.spool = LocalStorage(spool if spool is not None else env.home() / "neff-spool" / folder)
        self.places: tuple[Storage, ...] = (self.storage, self.spool, *([self.shared] if self.shared else []))
        """Every storage that a compile may be answered from, in the order in which they are asked."""
        self._timeout_s = timeout_s
        self._unreadable: dict[str, str] = {}

    def usable(self, name: str, key: str) -> Entry | str:
        """Return the complete entry of any place, or the reason for a miss in the named cache."""
        results = (usable(place, name, key) for place in self.places)
        named = next(results)
        return named if isinstance(named, Entry) else next((r for r in results if isinstance(r, Entry)), named)

    def fetch(self, name: str, key: str) -> Found:
        """Return a verified NEFF on this machine from any place, or the reason for a miss."""
        result = self._fetch_named(name, key)
        if result.path is not None or self.shared is None:
            return result
        copied = self._copy_shared(self.shared, name, key)
        if copied.path is None:
            return replace(result, reason=f"{result.reason} (in {self.shared.url}: {copied.reason})")
        return replace(copied, reason=f"{copied.reason} from {self.shared.url}")

    def _copy_shared(self, shared: RemoteStorage, name: str, key: str) -> Found:
        if isinstance(self.storage, LocalStorage):
            try:
                return self._fetch_remote(shared, self.storage, name, key)
            except NotWritableError:
                pass  # a read-only cache: the spool takes it
        copied = self._in_spool(lambda: self._fetch_remote(shared, self.spool, name, key))
        return replace(copied, in_cache=False)

    def _fetch_remote(self, place: RemoteStorage, to: LocalStorage, name: str, key: str) -> Found:
        return self._asked(
            place,
            lambda: fetch_remote(place, to, name, key, self._timeout_s),
            lambda reason: Found(reason=reason),
        )

    def _asked(self, place: Storage, ask: Callable[[], T], otherwise: Callable[[str], T]) -> T:
        """Ask a place; a remote one that cannot be read is reported once, and not asked again."""
        reason = self._unreadable.get(place.url)
        if reason is None:
            try:
                return ask()
            except CacheError as error:
                if not isinstance(place, RemoteStorage) or error.details.get("cache") != place.url:
                    raise
                reason = self._unreadable[place.url] = f"it cannot be read: {error.__cause__}"
                logger.warning("The compile cache %s is not used: %s. %s", place.url, reason, error.hint)
        return otherwise(reason)

    def _fetch_named(self, name: str, key: str) -> Found:
        storage = self.storage
        if isinstance(storage, LocalStorage):
            result = fetch_local(storage, name, key)
        else:
            result = self._in_spool(lambda: self._fetch_remote(storage, self.spool, name, key))
        if result.path is not None:
            return result
        spooled = fetch_local(self.spool, name, key)
        if spooled.path is None:
            return result
        in_cache, note = self._share(name)
        reason = f"{spooled.reason}, kept in {self.spool.root} (in the cache: {result.reason})"
        return replace(spooled, in_cache=in_cache, reason=reason if note is None else f"{reason}; {note}")

    def compile(self, name: str, fields: Mapping[str, Any], produce: Callable[[Path], None]) -> Found:
        """Compile an entry into the cache, or into the spool when the cache cannot take it."""
        note = None
        if isinstance(self.storage, LocalStorage):
            try:
                return build(self.storage, name, fields, produce, self._timeout_s)
            except NotWritableError as error:
                note = self._not_stored(error)
        built = self._in_spool(lambda: build(self.spool, name, fields, produce, self._timeout_s))
        in_cache, share_note = self._share(name)
        return replace(built, in_cache=in_cache, note=note or share_note)

    def record(self, request: Mapping[str, Any], target: requests.Target, label: str | None = None) -> str | None:
        """Remember the entry of a request and a label, in the spool if needed; return a failure as text, or None."""
        for place in (self.storage, self.spool):
            try:
                requests.record(place, request, target)
                if label is not None:
                    requests.label(place, label, target)
                return None
            except CacheError as error:
                note = f"the request could not be recorded ({error.__cause__ or error})"
        return note

    def target(self, request: Mapping[str, Any]) -> requests.Target | None:
        """Entry of a request; entries known only to the shared cache are remembered here."""
        target = self._find(self.storage, request) or self._find(self.spool, request)
        if target is None and self.shared is not None:
            target = self._find(self.shared, request)
            if target is not None:
                self.record(request, target)
        return target

    def _find(self, place: Storage, request: Mapping[str, Any]) -> requests.Target | None:
        return self._asked(place, lambda: requests.find(place, request), lambda reason: None)

    def others(self, name: str, *, limit: int | None = _NUM_COMPARED) -> list[Entry]:
        """Other entries to compare a request with, the same compiler version first if there are many."""
        version = name.partition("/")[0] + "/"
        entries: dict[str, Entry] = {}
        for place in (self.spool, self.storage):
            for entry in self._asked(place, functools.partial(_entries, place, version, limit), lambda reason: []):
                entries[entry.name] = entry
        entries.pop(name, None)
        return list(entries.values())

    def _share(self, name: str) -> tuple[bool, str | None]:
        if isinstance(self.storage, LocalStorage):
            return False, None
        try:
            share(self.spool, self.storage, name)
        except CacheError as error:
            return False, self._not_stored(error)
        return True, None

    def _not_stored(self, error: CacheError) -> str:
        return f"not stored in the cache ({error.__cause__}), kept in {self.spool.root}"

    def _in_spool(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except NotWritableError as error:
            places = f"The compile cache {self.storage.url} is remote or read-only, and so is {self.spool.root}"
            hint = "Set OPTIMUM_NEURON_HOME to a folder that you may write."
            raise CacheError(f"{places}: {error.__cause__}.", hint=hint) from error


def _entries(place: Storage, version: str, limit: int | None) -> list[Entry]:
    """Entries of a place, those of a compiler version first."""
    files = place.files()
    names = sorted(names_in(files), key=lambda other: (not other.startswith(version), other))
    return list_entries(place, files, names[:limit])
