"""The device "xla" is built once for a machine; processes that tests start find it in the caches of the test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from optimum_neuron import xla
from optimum_neuron.xla import compiled, device, graphs, library, metrics, report
from tests.device.conftest import built as built, default_state as default_state, new_python as new_python, place_copy

# Chosen before a test run sets its caches, so that the developer's is used and nothing is built twice.
library.place()


@pytest.fixture(scope="session", autouse=True)
def enabled(built: Path) -> None:
    """The device in this process, and its shared object where other processes of the tests look for it."""
    device.enable()
    for path in (library.place(), library.place().with_suffix(".so")):
        place_copy(path, built.parent)


@pytest.fixture
def fresh(tmp_path, monkeypatch) -> None:
    """No graph is open or compiled, nothing is counted, and the compile cache is empty."""
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    xla.sync()
    graphs.forget()
    metrics.clear_all()
    report.REPORT.clear()
    monkeypatch.setattr(compiled, "_cache", None)
