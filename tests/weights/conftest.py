"""Small safetensors files, written by the library or by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.neffs import small_disk

DISK_BYTES = 64 * 1024


@pytest.fixture
def raw_file(tmp_path):
    """Write a file with a given header (plain data, padded, or raw bytes) and data part."""

    def write(header: Any, data: bytes = b"", size: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        if not isinstance(header, bytes):
            text += b" " * (-(len(text) + 8) % 64)
        path = tmp_path / "raw.safetensors"
        path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)
        return path

    return write


@pytest.fixture
def disk(tmp_path):
    """A disk of 64 KiB."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder
