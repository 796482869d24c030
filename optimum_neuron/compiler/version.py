"""The compiler's version: part of every cache key and of every artifact."""

from __future__ import annotations

import functools
from pathlib import Path

from ..files.records import hash_of_sources

COMPILER_VERSION = "0.1.0"
"""Raised by any change of passes, rules or IR that users should know of."""


@functools.cache
def source_hash() -> str:
    """Hash of the code that makes programs: compiler and models. Requests made by other code are not reused."""
    return hash_of_sources(
        Path(__file__).resolve().parents[1], ("compiler", "models", "sources", "kinds", "exporters")
    )[:16]
