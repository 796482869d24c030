"""Lookups in a cache: requests with their entries, and labels.

It reads listings and small files; it does not interpret requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import requests
from .entries import Entry, list_entries, names_in
from .storage import Storage


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A request and the complete entry that it leads to."""

    request: Mapping[str, Any]
    entry: Entry
    url: str
    """The storage that has both."""


def recorded(places: Iterable[Storage]) -> list[Recorded]:
    """List the requests of storages that lead to complete entries; a request of several storages is listed once."""
    results: dict[str, Recorded] = {}
    for path, found in _leading(places, requests.FOLDER):
        if found.request:
            results.setdefault(path, found)
    return list(results.values())


def labels(places: Iterable[Storage]) -> set[str]:
    """Return the labels of storages that lead to complete entries."""
    return {path.removeprefix(requests.LABELS).rpartition("/")[0] for path, _ in _leading(places, requests.LABELS)}


def _leading(places: Iterable[Storage], folder: str) -> Iterator[tuple[str, Recorded]]:
    """Index files in a folder that lead to complete entries."""
    for place in places:
        files = place.files()
        paths = requests.index_files(files, folder)
        entries = {entry.name: entry for entry in list_entries(place, files, names_in(files) if paths else ())}
        for path, data in place.read_many(paths).items():
            target, request = requests.parse_whole(data)
            entry = entries.get(target.entry) if target is not None else None
            if entry is not None and entry.state == "success":
                yield path, Recorded(request=request, entry=entry, url=place.url)
