"""The compiler's version: part of every cache key and of every artifact."""

from __future__ import annotations

COMPILER_VERSION = "0.1.0"
"""Raised by any change of passes, rules or IR that could change a program."""
