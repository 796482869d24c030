"""Photographs that scikit-image carries, with a caption each."""

from __future__ import annotations

from pathlib import Path

from .common import save_rows

_CAPTIONS = {
    "astronaut.png": "An astronaut in an orange suit in front of a flag and a model of a space shuttle.",
    "chelsea.png": "The face of a cat with green eyes.",
    "coffee.png": "A cup of coffee with a spoon on a red saucer on a wooden table.",
    "rocket.jpg": "A rocket on its launch pad between towers in the evening.",
}
"""Ours; the package has none."""


def convert(source: Path, destination: Path) -> None:
    """Copy the images unchanged, and write one row for each."""
    source.rename(destination)
    rows = ({"image": path.name, "caption": _CAPTIONS[path.name]} for path in sorted(destination.iterdir()))
    save_rows(list(rows), destination)
