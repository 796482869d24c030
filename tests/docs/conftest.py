"""Examples run in an empty folder of the test; caches and settings come from `tests/conftest.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.device.conftest import built  # noqa: F401  (fixture)


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture(scope="session")
def real_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One compile cache for all workers: pages export the same real models."""
    folder = tmp_path_factory.getbasetemp()
    return (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "neff"


@pytest.fixture
def real_environment(real_cache: Path, built: Path) -> dict[str, str]:  # noqa: F811
    """Environment of a process that runs a real checkpoint: a compile cache of this run, the developer's checkpoints.

    Without a C++ compiler host code is ready at once, so examples need no -O1 to be quick here. The device is built.
    """
    return {"CXX": "/nonexistent/c++", "NEURON_COMPILE_CACHE_URL": str(real_cache)}
