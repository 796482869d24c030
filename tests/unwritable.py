"""Folders that cannot be written as far as `os.access` knows: root may write everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def forbid_writing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    real = os.access

    def access(path, mode, **options):
        return not (mode & os.W_OK and Path(path).is_relative_to(folder)) and real(path, mode, **options)

    monkeypatch.setattr(os, "access", access)
