"""The compiler's version: part of every cache key and of every artifact."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

COMPILER_VERSION = "0.1.0"
"""Raised by any change of passes, rules or IR that users should know of."""


@functools.cache
def source_hash() -> str:
    """Hash of the code that makes programs: compiler and models. Requests made by other code are not reused."""
    return hash_of_sources(
        Path(__file__).resolve().parents[1], ("compiler", "models", "sources", "kinds", "exporters")
    )[:16]


def hash_of_sources(root: Path, names: Iterable[str], suffixes: tuple[str, ...] = (".py",)) -> str:
    """Hash files and folders below `root`, with their paths; of folders the files with one of the suffixes."""
    digest = hashlib.sha256()
    for name in names:
        entry = root / name
        paths = sorted(path for path in entry.rglob("*") if path.suffix in suffixes) if entry.is_dir() else [entry]
        for path in paths:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
