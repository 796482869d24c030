"""Copy the entries compiled on this machine to a shared cache.

It uploads complete entries that are missing there, then the requests and labels that lead to them, and removes
nothing. Two machines may synchronize at once: an entry has one content, so it does not matter who is last.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from . import requests
from .build import entry_files
from .entries import DONE_NAME, NEFF_NAME, Entry, list_entries, names_in, neff_problem
from .shared import shared_url
from .storage import LocalStorage, RemoteStorage, open_remote, url_of

if TYPE_CHECKING:
    from .tiers import Tiers

_NUM_TOGETHER = 20
"""Entries that are uploaded together: one commit on the Hub."""


def synchronize(tiers: Tiers, url: str | None, *, dry_run: bool) -> dict[str, Any]:
    """Upload the entries of this machine to `url`, or to the shared cache; see `CompileCache.synchronize`."""
    destination = _destination(tiers, url)
    present = destination.files()
    copied: list[dict[str, Any]] = []
    num_present = 0
    for place in (tiers.storage, tiers.spool):
        if not isinstance(place, LocalStorage) or not place.root.is_dir():
            continue
        files = place.files()
        entries = [entry for entry in list_entries(place, files, names_in(files)) if _is_whole(place, entry)]
        missing = [entry for entry in entries if f"{entry.name}/{DONE_NAME}" not in present]
        num_present += len(entries) - len(missing)
        index = _index_files(place, files, {entry.name for entry in entries}, present)
        if not dry_run:
            for start in range(0, len(missing), _NUM_TOGETHER):
                some = missing[start : start + _NUM_TOGETHER]
                destination.upload_all({k: v for entry in some for k, v in entry_files(place, entry.name).items()})
            if index:
                destination.upload_all(index)
        present |= {f"{entry.name}/{DONE_NAME}": 0 for entry in missing} | dict.fromkeys(index, 0)
        copied += [{"name": entry.name, "size_bytes": entry.size_bytes} for entry in missing]
    return {"url": destination.url, "dry_run": dry_run, "copied": copied, "num_present": num_present}


def _destination(tiers: Tiers, url: str | None) -> RemoteStorage:
    chosen = shared_url().value if url is None else url_of(url)
    if chosen is not None:
        return open_remote(chosen)
    if isinstance(tiers.storage, RemoteStorage):
        return tiers.storage
    hint = "Choose one with `optimum-cli neuron cache set NAME`, or pass --repo_id NAME."
    raise ConfigError(f"The compile cache {tiers.storage.url} has no shared cache to copy its entries to.", hint=hint)


def _is_whole(place: LocalStorage, entry: Entry) -> bool:
    return entry.marker is not None and neff_problem(place.root / entry.name / NEFF_NAME, entry.marker) is None


def _index_files(
    place: LocalStorage, files: dict[str, int], entries: set[str], present: dict[str, int]
) -> dict[str, Path]:
    """Requests and labels that lead to these entries and are missing in the destination."""
    missing = [path for path in requests.index_files(files) if path not in present]
    targets = {path: requests.parse(data) for path, data in place.read_many(missing).items()}
    return {path: place.root / path for path, target in targets.items() if target and target.entry in entries}
