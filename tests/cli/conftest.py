"""Commands run with caches of the test and modules of ours replaced; `cli` is in `tests/conftest.py`."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

import pytest

from optimum_neuron.base import env


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path_factory):
    """No variable of the developer's shell decides a test; caches live in a folder of the test."""
    for name in (*env.VARIABLES, "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def fake_module(monkeypatch):
    """Return a function that puts other attributes in place of those of a module; the rest of it stays."""
    from optimum_neuron.cli import NeuronCommand  # what commands import when they are loaded is the real thing

    assert NeuronCommand.COMMAND is not None

    def put(name: str, **attributes: Any) -> None:
        real = importlib.import_module(name)
        module = types.ModuleType(name)
        vars(module).update(attributes, __getattr__=functools.partial(getattr, real))
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        monkeypatch.setattr(sys.modules[parent], child, module, raising=False)

    return put
