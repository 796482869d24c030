"""Tiny NEFFs for tests of the container and of the cache."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from optimum_neuron.compiler.neff import write_neff

FACTS = dict(name="m", target="inf2", core_version=2, compiler_version="2.21", metadata={})


def compile_tiny(path: Path, content: bytes = b"{}") -> None:
    """Stand in for a compiler."""
    write_neff(path, {"ir.json": content}, **FACTS)  # type: ignore[arg-type]


def never(path: Path) -> None:
    """Stand in for a compiler that must not run."""
    pytest.fail("compiled although it was cached")


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a small disk; skip the test if this process may not mount."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this process may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
