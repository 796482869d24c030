"""Runs commands through optimum's own entry point, in this process, with the real registration."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from optimum.commands.optimum_cli import main

from optimum_neuron import env


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command did."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No variable of the developer's shell decides a test; caches live in a folder of the test."""
    for name in (*env.VARIABLES, "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Return a function that runs `optimum-cli` with the given words."""

    def run(*words: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["optimum-cli", *words])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        captured = capfd.readouterr()
        return Ran(code=code, stdout=captured.out, stderr=captured.err)

    return run


@pytest.fixture
def fake_module(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a module with the given attributes in place of one of ours."""

    def put(name: str, **attributes: Any) -> None:
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        monkeypatch.setattr(sys.modules[parent], child, module, raising=False)

    return put
