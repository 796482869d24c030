"""MNIST: images of handwritten digits, in IDX files.

An IDX file has a header of big-endian 32-bit integers (a magic number, then the size of each axis) before its bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import ModelError
from .common import save_rows

_SPLITS = {"train": "train", "t10k": "test"}
"""Start of a file's name to the name of the split."""


def convert(source: Path, destination: Path) -> None:
    """Write one row for each image, with the rows of its pixels from top to bottom as base64."""
    save_rows((row for prefix in _SPLITS for row in _rows(source, prefix)), destination)


def _rows(source: Path, prefix: str) -> Iterator[dict[str, Any]]:
    (num_images, *size), pixels = _read(source / f"{prefix}-images-idx3-ubyte", num_axes=3)
    _, digits = _read(source / f"{prefix}-labels-idx1-ubyte", num_axes=1)
    step = size[0] * size[1]
    for index in range(num_images):
        image = pixels[index * step : (index + 1) * step]
        yield {"split": _SPLITS[prefix], "digit": digits[index], "pixels": base64.b64encode(image).decode("ascii")}


def _read(path: Path, *, num_axes: int) -> tuple[list[int], bytes]:
    """Return the sizes and the bytes of an IDX file of unsigned bytes."""
    content = path.read_bytes()
    words = [int.from_bytes(content[4 * word : 4 * word + 4], "big") for word in range(1 + num_axes)]
    magic, sizes = words[0], words[1:]
    data = content[4 * len(words) :]
    if magic != 0x0800 + num_axes or len(data) != math.prod(sizes):
        message = f"{path.name} is not an IDX file of bytes with {num_axes} axes (magic {magic:#x}, sizes {sizes})."
        raise ModelError(message, hint="Correct the converter.", file=path.name)
    return sizes, data
