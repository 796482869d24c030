"""The fetched folder: its completion marker, and damage checks.

The marker is a JSON file with the size and hash of every other file, written last. It does not depend on packages and
models.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..files.plain_json import parse_json

MARKER = "optimum_neuron_checkpoint.json"
"""Name of the marker inside the folder."""
DATA = "data.jsonl"
"""Name of the rows of a data set inside its folder."""
FORMAT = 1
"""Raised when a newer conversion must replace folders made by an older one."""
_HASHED_AT_ONCE_BYTES = 16 << 20
"""Files up to this size are hashed on every look; weights above it are compared by size, so that a look is instant."""


def sha256(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(folder: Path, origin: Mapping[str, Any]) -> None:
    """Write the marker that makes a folder of finished files complete; `origin` says where they come from."""
    files = {
        path.relative_to(folder).as_posix(): {"size_bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    marker = folder / MARKER
    marker.write_text(json.dumps({"format": FORMAT, "origin": dict(origin), "files": files}, indent=2) + "\n", "utf-8")
    # safetensors writes weights for their owner only; everybody who may read the cache may read them.
    for name in files:
        os.chmod(folder / name, marker.stat().st_mode)


def _read_marker(folder: Path) -> dict[str, Any] | None:
    try:
        marker = parse_json((folder / MARKER).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not isinstance(marker, dict) or marker.get("format") != FORMAT or not isinstance(marker.get("files"), dict):
        return None
    return marker


def _is_damaged(path: Path, expected: Mapping[str, Any], *, hash_weights: bool) -> bool:
    if not path.is_file() or path.stat().st_size != expected["size_bytes"]:
        return True
    hashed = hash_weights or expected["size_bytes"] <= _HASHED_AT_ONCE_BYTES
    return hashed and sha256(path) != expected["sha256"]


def damaged_files(folder: Path, *, hash_weights: bool = True) -> list[str]:
    """Return the files of a fetched folder that are missing or altered; an empty list means that it is whole.

    Args:
        folder: A folder that `fetch` returned.
        hash_weights: Read files above 16 MiB too, instead of comparing their size.

    Returns:
        Paths inside the folder, sorted; only the marker's name when that is missing, unreadable or of another format.
    """
    marker = _read_marker(folder)
    if marker is None:
        return [MARKER]
    files = marker["files"]
    return sorted(n for n, expected in files.items() if _is_damaged(folder / n, expected, hash_weights=hash_weights))
