"""A package that carries a Hugging Face folder: nothing to convert."""

from __future__ import annotations

from pathlib import Path


def convert(source: Path, destination: Path) -> None:
    """Copy the folder unchanged."""
    source.rename(destination)
