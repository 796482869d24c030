"""Examples run in a folder of the test, with caches of the test and none of the developer's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimum_neuron import env


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*env.VARIABLES, "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Environment of a process that runs a real checkpoint: its own compile cache, the developer's checkpoints.

    Without a C++ compiler host code is ready at once, so examples need no -O1 to be quick here.
    """
    monkeypatch.delenv("OPTIMUM_NEURON_HOME")
    return {"CXX": "/nonexistent/c++", "NEURON_COMPILE_CACHE_URL": str(tmp_path / "neff")}
