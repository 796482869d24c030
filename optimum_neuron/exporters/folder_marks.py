"""Recognize an exported folder by its files, without reading them. It does not depend on torch.

is_export(Path("smollm2-neuron"))
"""

from __future__ import annotations

from pathlib import Path

from ..options.configuration import CONFIG_FILE, NEFF_FILE


def is_export(folder: Path) -> bool:
    """Return whether a folder is a complete export."""
    return (folder / CONFIG_FILE).is_file() and (folder / NEFF_FILE).is_file()


def is_broken_export(folder: Path) -> bool:
    """Return whether a folder has part of an export, as a killed process leaves it."""
    return (folder / CONFIG_FILE).is_file() != (folder / NEFF_FILE).is_file()
