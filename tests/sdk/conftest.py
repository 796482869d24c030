"""The packages of `sdk/` from the source tree, whether or not the distribution is installed."""

from __future__ import annotations

import sys

import pytest

from tests.tree import ROOT


@pytest.fixture
def sdk(monkeypatch, tmp_path):
    """Import `torch_neuronx` and `neuronxcc` again, in a home of the test."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("neuronxcc", "torch_neuronx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(ROOT / "sdk")
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path / "home"))
