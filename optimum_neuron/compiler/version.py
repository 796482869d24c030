"""The compiler's version: part of every cache key and of every artifact."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

COMPILER_VERSION = "0.1.0"
"""Raised by any change of passes, rules or IR that users should know of."""


@functools.cache
def source_hash() -> str:
    """Hash of the code that makes programs: compiler and models. Requests made by other code are not reused."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for folder in ("compiler", "models", "exporters"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
