"""The compile cache as its users see it: results with reasons, explanations, status and clean-up.

It does not depend on models or compilers: `fields` identify an entry, and `produce` creates it.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base import env
from ...base.core import Choice, Rejected
from ...errors import ConfigError
from .. import tally
from . import report
from .entries import Entry
from .explain import describe, nearest_entries
from .listing import Recorded, labels, recorded
from .requests import Target, entry_key, entry_name
from .shared import shared_url
from .synchronize import synchronize
from .tiers import Tiers

_NUM_NEAREST = 3
_kept_in: contextvars.ContextVar[str | None] = contextvars.ContextVar("cache of a block", default=None)


@contextlib.contextmanager
def kept_in(url: str | Path) -> Iterator[None]:
    """Keep what is compiled inside a block in another folder or at another URL than `env.compile_cache_url()`."""
    token = _kept_in.set(str(url))
    try:
        yield
    finally:
        _kept_in.reset(token)


@dataclass(frozen=True, kw_only=True)
class CacheResult:
    """A NEFF from the cache, or just compiled."""

    hit: bool
    """Whether this process compiled nothing."""
    stored: bool
    """Whether the cache itself holds it now, and not only the spool of this machine."""
    path: Path
    """The NEFF on this machine, verified."""
    key: str
    choice: Choice[str]
    """The entry's name with the reason of the hit or miss; on a miss the nearest entries and how they differ."""


class CompileCache:
    """A content-addressed store of NEFFs that many processes and machines may share.

    Args:
        url: Folder or fsspec URL; by default that of `kept_in` or `env.compile_cache_url()`, with the shared cache
            behind it that `shared.shared_url()` names.
        spool: Folder for downloads and for entries that a read-only cache cannot store; by default below `env.home()`.
        lock_timeout_s: Longest wait for a process that compiles the same entry, in seconds; None for as long as it
            takes.

    Raises:
        CacheError: The address cannot be opened.

    Example:
        ```python
        import tempfile
        from optimum_neuron.compiler.cache import CompileCache

        with tempfile.TemporaryDirectory() as folder:
            print(CompileCache(folder).lookup({"compiler_version": "2.21", "sequence_length": 128}))
        ```
    """

    def __init__(
        self, url: str | Path | None = None, *, spool: str | Path | None = None, lock_timeout_s: float | None = None
    ) -> None:
        self.url = str(url) if url is not None else _kept_in.get() or env.compile_cache_url()
        shared = shared_url().value if url is None else None
        self.shared_url = shared if shared != self.url else None
        self._tiers = Tiers(self.url, Path(spool) if spool is not None else None, lock_timeout_s, self.shared_url)

    @property
    def cache_path(self) -> str:
        """Folder of a cache on this machine, or the URL of another one."""
        return self.url.removeprefix("file://")

    def get_or_compile(
        self,
        fields: Mapping[str, Any],
        produce: Callable[[Path], None],
        *,
        request: Mapping[str, Any] | None = None,
        label: str | None = None,
    ) -> CacheResult:
        """Give the NEFF that `fields` describe, compiling it at most once among all processes.

        Args:
            fields: Everything that decides the compile, with `compiler_version`; see `entry_key`.
            produce: Writes the NEFF to the path it is given; other files in that folder are thrown away.
            request: Facts known before the model was captured; `find` leads from it to this entry later.
            label: Name under which `labels` lists the entry of the request, for example "llama/org/name".

        Raises:
            CacheError: A folder of this machine cannot be read, none can be written, or a disk is full (needed and
                free bytes are in the message and in `details`). A remote cache that cannot be read is a warning.
        """
        name, key = entry_name(fields), entry_key(fields)
        found, reasons = self._tiers.fetch(name, key), list[str | None]()
        rejected: tuple[Rejected, ...] = ()
        if found.path is not None:
            reasons.append(f"hit: {found.reason}")
        else:
            text, rejected = self._nearest(name, fields)
            missed, found = found.reason, self._tiers.compile(name, fields, produce)
            reasons += [f"miss: {missed}", found.leftover, text, found.note]
            if not found.compiled:
                rejected, reasons = (), ["hit: another process compiled it while this one waited", found.note]
        assert found.path is not None, "it is there, or was compiled"
        _tell(name, was_compiled=found.compiled)
        if request is not None:
            reasons.append(self._tiers.record(request, Target(entry=name, key=key), label))
        choice = Choice(value=name, reason="; ".join(part for part in reasons if part), rejected=rejected)
        return CacheResult(hit=not found.compiled, stored=found.in_cache, path=found.path, key=key, choice=choice)

    def find(self, request: Mapping[str, Any]) -> Choice[Path | None]:
        """Give the NEFF that a recorded request led to, verified and on this machine, or None and why.

        Raises:
            CacheError: A folder of this machine cannot be read.
        """
        target = self._tiers.target(request)
        if target is None:
            return Choice(value=None, reason="miss: this request was never compiled")
        result = self._tiers.fetch(target.entry, target.key)
        kind = "miss" if result.path is None else "hit"
        if result.path is not None:
            _tell(target.entry, was_compiled=False)
        return Choice(value=result.path, reason=f"{kind}: the request leads to {target.entry}: {result.reason}")

    def lookup(self, fields: Mapping[str, Any]) -> Choice[str | None]:
        """Name the entry for `fields`, or None with the nearest ones; nothing is downloaded and no NEFF is read.

        Raises:
            CacheError: The cache cannot be read.
        """
        name = entry_name(fields)
        entry = self._tiers.usable(name, entry_key(fields))
        if isinstance(entry, Entry) and entry.marker is not None:
            return Choice(value=name, reason=f"hit: compiled {entry.marker.age} ago")
        text, rejected = self._nearest(name, fields)
        return Choice(value=None, reason=f"miss: {entry}; {text}", rejected=rejected)

    def explain(self, fields: Mapping[str, Any], *, limit: int = _NUM_NEAREST) -> dict[str, Any]:
        """Say why `fields` hit or miss, with the nearest entries and every differing field; plain data.

        Args:
            fields: As for `get_or_compile`.
            limit: Largest number of entries to name.

        Raises:
            CacheError: The cache cannot be read.
        """
        name, key = entry_name(fields), entry_key(fields)
        entry = self._tiers.usable(name, key)
        others = self._tiers.others(name, limit=None)
        return {
            "entry": name,
            "key": key,
            "hit": isinstance(entry, Entry),
            "reason": entry.reason if isinstance(entry, Entry) else entry,
            "num_compared": len(others),
            "nearest": [
                {
                    "entry": other.name,
                    "text": describe(differing),
                    "differences": [{"field": d.field, "asked": d.request, "cached": d.cached} for d in differing],
                }
                for other, differing in nearest_entries(fields, others, limit=limit)
            ],
        }

    def recorded(self) -> list[Recorded]:
        """List requests with the complete entries that they lead to, here and in the shared cache.

        Raises:
            CacheError: A cache cannot be read.
        """
        return recorded(self._tiers.places)

    def labels(self) -> set[str]:
        """Return the labels of complete entries, here and in the shared cache.

        Raises:
            CacheError: A cache cannot be read.
        """
        return labels(self._tiers.places)

    def synchronize(self, url: str | None = None, *, dry_run: bool = False) -> dict[str, Any]:
        """Copy complete entries of this machine to the shared cache, with the requests that lead to them.

        Args:
            url: Destination; by default the shared cache, or this cache itself if it is remote.
            dry_run: Only list the entries to copy.

        Returns:
            Plain data: `url`, `dry_run`, `copied` (name and size of each), and how many it has already.

        Raises:
            ConfigError: There is no shared cache.
            CacheError: It cannot be written.
        """
        return synchronize(self._tiers, url, dry_run=dry_run)

    def status(self) -> dict[str, Any]:
        """Describe the cache and its spool: addresses, entries, sizes, ages and states; plain data.

        Raises:
            CacheError: The cache cannot be read.
        """
        spool = self._tiers.spool
        return {**report.status(self._tiers.storage), "spool": report.status(spool) if spool.root.is_dir() else None}

    def prune(
        self,
        *,
        older_than_days: float | None = None,
        max_size_bytes: int | None = None,
        incomplete: bool = True,
        old_versions: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Remove entries from the cache and from its spool; entries that a process is compiling stay.

        Args:
            older_than_days: Remove entries compiled longer ago.
            max_size_bytes: Remove the oldest entries until the rest takes no more.
            incomplete: Remove entries that cannot be used.
            old_versions: Remove entries of other versions of the compiler.
            dry_run: Only list the entries to remove.

        Returns:
            Plain data: `removed` and `spool_removed` (name, reason and size of each), `freed_bytes` and `dry_run`.

        Raises:
            ConfigError: A limit is negative.
            CacheError: The cache cannot be written.
        """
        limits = report.PruneLimits(
            older_than_days=older_than_days,
            max_size_bytes=max_size_bytes,
            incomplete=incomplete,
            old_versions=old_versions,
        )
        spool = self._tiers.spool
        removed = report.prune(self._tiers.storage, limits, dry_run=dry_run)
        spooled = report.prune(spool, limits, dry_run=dry_run) if spool.root.is_dir() else []
        return {
            "removed": removed,
            "spool_removed": spooled,
            "dry_run": dry_run,
            "freed_bytes": sum(item["size_bytes"] for item in [*removed, *spooled]),
        }

    def _nearest(self, name: str, fields: Mapping[str, Any]) -> tuple[str, tuple[Rejected, ...]]:
        others = self._tiers.others(name)
        if not others:
            return "the cache is empty", ()
        near = nearest_entries(fields, others, limit=_NUM_NEAREST)
        if not near:
            return f"no similar entry among {len(others)}", ()
        rejected = tuple(Rejected(candidate=other.name, reason=describe(differing)) for other, differing in near)
        return f"nearest: {rejected[0].reason}", rejected


def open_cache(disable_neuron_cache: bool, cache_url: str | None = None) -> CompileCache | None:
    """The compile cache, or None where it is switched off, by the argument or by --no_cache in NEURON_CC_FLAGS."""
    if disable_neuron_cache and cache_url is not None:
        message = f"disable_neuron_cache and the cache {cache_url} contradict each other."
        raise ConfigError(message, hint="Remove one of the two.", option="cache_url", value=cache_url)
    return None if disable_neuron_cache or (cache_url is None and env.no_compile_cache()) else CompileCache(cache_url)


def _tell(name: str, *, was_compiled: bool) -> None:
    """Record an entry for a parent process that asks for records."""
    if (folder := env.compile_records()) is not None:
        tally.add(folder, "neff", name, was_compiled=was_compiled)
