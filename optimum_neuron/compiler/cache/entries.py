"""Contents of an entry: `model.neff`, `fields.json`, and, written last, `model.done`.

It decides from small files whether an entry is complete; it never reads a NEFF except in `neff_problem`. The marker
holds the full key and the NEFF's hash and size, so a file swapped or cut short behind its back is noticed.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ...base.wording import duration
from ...errors import ArtifactError, ConfigError
from ...files.plain_json import canonical_json, parse_json
from ..neff import open_neff
from .requests import ENTRY_NAME, entry_key, entry_name
from .storage import Storage

NEFF_NAME, FIELDS_NAME, DONE_NAME = "model.neff", "fields.json", "model.done"
_MAX_NUMBER = 2**53
"""Larger times and sizes are damage: floating-point numbers cannot hold them exactly."""
_BUILDING = re.compile(r"(neuronxcc-[^/]+)/\.(MODULE_[0-9a-f]{20})\.building/.+")

State = Literal["success", "incomplete", "locked"]


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The content of `model.done`."""

    key: str
    neff_hash: str
    """SHA-256 of the NEFF's data part, in hexadecimal."""
    neff_size_bytes: int
    """Size of `model.neff`."""
    created_unix_s: int
    """When it was compiled."""

    @property
    def age(self) -> str:
        """How long ago that was, in the largest unit."""
        return duration(max(0.0, time.time() - self.created_unix_s))

    def to_json(self) -> bytes:
        """The file's bytes."""
        return canonical_json(asdict(self), what=DONE_NAME)

    @classmethod
    def from_json(cls, data: bytes) -> Marker:
        """Read the file."""
        try:
            marker = cls(**parse_json(data))
        except TypeError as error:
            raise ValueError(str(error)) from error
        numbers = (marker.created_unix_s, marker.neff_size_bytes)
        if not all(type(number) is int and 0 <= number <= _MAX_NUMBER for number in numbers):
            raise ValueError("its numbers are no times or sizes")
        return marker


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry as its small files describe it."""

    name: str
    """Folder below the root of the cache."""
    state: State
    """Whether the entry is usable."""
    reason: str
    """Why it is in that state."""
    size_bytes: int = 0
    """Size of all its files."""
    fields: Mapping[str, Any] | None = None
    """Fields that decided the compile, for complete entries."""
    marker: Marker | None = None
    """Its marker, for complete entries."""


@functools.lru_cache(maxsize=1024)
def examine(name: str, *, done: bytes | None, fields: bytes | None, neff_size_bytes: int | None) -> Entry:
    """Judge an entry by its small files and the size of its NEFF.

    A miss looks at hundreds of entries. Hashing their fields takes most of the time, so equal files are judged once.
    """
    reason, marker, content = None, None, None
    if done is None:
        reason = f"{DONE_NAME} is missing, so its compile was interrupted"
    elif neff_size_bytes is None or fields is None:
        reason = f"{NEFF_NAME if neff_size_bytes is None else FIELDS_NAME} is missing"
    else:
        try:
            marker, content = Marker.from_json(done), parse_json(fields)
            if entry_key(content) != marker.key or entry_name(content) != name:
                reason = f"{FIELDS_NAME} belongs to another entry"
            elif marker.neff_size_bytes != neff_size_bytes:
                reason = f"{NEFF_NAME} has {neff_size_bytes:,} bytes, not the {marker.neff_size_bytes:,} of {DONE_NAME}"
        except (ValueError, AttributeError, TypeError, RecursionError, ConfigError) as error:
            reason = f"{DONE_NAME} or {FIELDS_NAME} is damaged ({error})"
    size_bytes = (neff_size_bytes or 0) + len(done or b"") + len(fields or b"")
    if reason is not None:
        return Entry(name=name, state="incomplete", reason=reason, size_bytes=size_bytes)
    return Entry(name=name, state="success", reason="complete", size_bytes=size_bytes, fields=content, marker=marker)


def find_entry(storage: Storage, name: str) -> Entry | None:
    """Look at one entry; None when there is nothing under its name."""
    done = storage.read(f"{name}/{DONE_NAME}")
    fields = storage.read(f"{name}/{FIELDS_NAME}")
    size_bytes = storage.size_bytes(f"{name}/{NEFF_NAME}")
    if done is None and fields is None and size_bytes is None:
        return None
    return examine(name, done=done, fields=fields, neff_size_bytes=size_bytes)


def names_in(files: Mapping[str, int]) -> list[str]:
    """The entries of a listing, sorted."""
    return sorted(folder for folder in {path.rpartition("/")[0] for path in files} if ENTRY_NAME.fullmatch(folder))


def list_entries(storage: Storage, files: Mapping[str, int], names: Iterable[str]) -> list[Entry]:
    """Look at entries of a listing, in the order of their names."""
    names = sorted(names)
    small = storage.read_many(
        path for name in names for path in (f"{name}/{DONE_NAME}", f"{name}/{FIELDS_NAME}") if path in files
    )
    return [
        examine(
            name,
            done=small.get(f"{name}/{DONE_NAME}"),
            fields=small.get(f"{name}/{FIELDS_NAME}"),
            neff_size_bytes=files.get(f"{name}/{NEFF_NAME}"),
        )
        for name in names
    ]


def unfinished(files: Mapping[str, int]) -> dict[str, int]:
    """Entries of a listing that are being built, or whose build was killed, with the bytes written so far."""
    building: dict[str, int] = {}
    for path, size_bytes in files.items():
        if match := _BUILDING.fullmatch(path):
            name = f"{match[1]}/{match[2]}"
            building[name] = building.get(name, 0) + size_bytes
    return building


def neff_problem(path: Path, marker: Marker) -> str | None:
    """Verify a whole cached NEFF; return a problem, or None."""
    try:
        with open_neff(path) as neff:
            digest = neff.header.hash.hex()
    except ArtifactError as error:
        return f"the cached NEFF is damaged ({error})"
    return None if digest == marker.neff_hash else f"the cached NEFF is not the one that {DONE_NAME} describes"
