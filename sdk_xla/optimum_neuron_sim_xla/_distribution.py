"""The distribution `torch_xla`, for libraries that ask `importlib.metadata` for its version."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from optimum_neuron.base import env
from optimum_neuron.base.vendor import SIMULATED

VERSION = "2.9.0"
"""Release of torch_xla whose names these are: the last one that the Neuron SDK uses."""


class Simulated(importlib.metadata.Distribution):
    """Stands for the files of a distribution."""

    def read_text(self, filename: str) -> str | None:
        """Return the text of a file; None if there is no such file."""
        files = {"METADATA": f"Metadata-Version: 2.1\nName: torch_xla\nVersion: {VERSION}\n", "INSTALLER": SIMULATED}
        return files.get(filename)

    def locate_file(self, path: str | Path) -> Path:  # type: ignore[override]
        """Return where a file would be."""
        return Path(__file__).parent / path


def distributions() -> Sequence[Simulated]:
    """Return the distribution where every library may import `torch_xla`, or where it was imported."""
    return [Simulated()] if env.xla() or (env.xla() is None and "torch_xla" in sys.modules) else []
