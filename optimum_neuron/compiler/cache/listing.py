"""What a cache can answer: requests with the entries that they lead to, and labels.

It reads listings and small files; it knows nothing of what a request says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import requests
from .entries import Entry, list_entries, names_in
from .storage import Storage


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A request and the complete entry that it leads to."""

    request: Mapping[str, Any]
    """The request."""
    entry: Entry
    """Where it leads."""
    url: str
    """The storage that has both."""


def recorded(places: Iterable[Storage]) -> list[Recorded]:
    """List the requests of storages that lead to complete entries; a request of several storages is listed once."""
    results: dict[str, Recorded] = {}
    for place in places:
        files = place.files()
        entries = _complete(place, files)
        paths = sorted(path for path in files if path.startswith(requests.FOLDER) and path.endswith(".json"))
        for path, data in place.read_many(paths).items():
            target, request = requests.parse_whole(data)
            if target is not None and request and (entry := entries.get(target.entry)):
                results.setdefault(path, Recorded(request=request, entry=entry, url=place.url))
    return list(results.values())


def labels(places: Iterable[Storage]) -> set[str]:
    """Return the labels of storages that lead to complete entries."""
    results: set[str] = set()
    for place in places:
        files = place.files()
        paths = [path for path in files if path.startswith(requests.LABELS) and path.endswith(".json")]
        entries = _complete(place, files) if paths else {}
        for path, data in place.read_many(paths).items():
            target = requests.parse(data)
            if target is not None and target.entry in entries:
                results.add(path.removeprefix(requests.LABELS).rpartition("/")[0])
    return results


def _complete(place: Storage, files: Mapping[str, int]) -> dict[str, Entry]:
    entries = list_entries(place, files, names_in(files))
    return {entry.name: entry for entry in entries if entry.state == "success"}
