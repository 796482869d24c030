"""Who may import `torch_xla`; `tests/xla/` tests what it does."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from typing import Any

import pytest

from optimum_neuron.base.vendor import refuse_beside
from tests.finders import ask_all_finders_first
from tests.tree import ROOT

INSTALLED = "/lib/python3/site-packages/{0}/__init__.py"
LOOKS = "import importlib.util; found = importlib.util.find_spec('torch_xla') is not None"
IMPORTS = "import torch_xla"


@pytest.fixture
def ask(monkeypatch) -> Callable[..., dict[str, Any]]:
    """Run code as a package in site-packages, or as a script."""
    monkeypatch.syspath_prepend(ROOT / "sdk_xla")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in ("OPTIMUM_NEURON_XLA", "PJRT_DEVICE"):
        monkeypatch.delenv(name, raising=False)
    importlib.import_module("optimum_neuron_sim_xla")
    assert "torch_xla" not in sys.modules

    def run(code: str, package: str | None) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": package or "__main__"}
        exec(compile(code, INSTALLED.format(package) if package else "/home/user/train.py", "exec"), names)
        return names

    return run


@pytest.mark.parametrize(
    ("package", "variables", "is_found"),
    [
        (None, {}, True),
        ("acme", {}, False),
        ("neuronx_acme.layers", {}, True),
        ("acme", {"OPTIMUM_NEURON_XLA": "1"}, True),
        ("acme", {"PJRT_DEVICE": "NEURON"}, True),
        ("acme", {"PJRT_DEVICE": "CPU"}, False),
        (None, {"OPTIMUM_NEURON_XLA": "0"}, False),
        ("neuronx_acme", {"OPTIMUM_NEURON_XLA": "0", "PJRT_DEVICE": "NEURON"}, False),
    ],
)
def test_scripts_find_it_and_libraries_do_not(ask, monkeypatch, package, variables, is_found):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ask(LOOKS, package)["found"] is is_found
    if not is_found:
        with pytest.raises(ModuleNotFoundError, match="OPTIMUM_NEURON_XLA") as excinfo:
            ask(IMPORTS, package)
        assert excinfo.value.name == "torch_xla"


def test_scripts_find_it_beside_other_finders(ask, monkeypatch):
    ask_all_finders_first(monkeypatch)
    assert ask(LOOKS, None)["found"] and not ask(LOOKS, "acme")["found"]


def test_real_package_goes_first(ask, monkeypatch, tmp_path):
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").write_text("__version__ = 'real'")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert ask(f"{IMPORTS}; version = torch_xla.__version__", "acme")["version"] == "real"
    finally:
        sys.modules.pop("torch_xla", None)


VERSION = "import importlib.metadata; version = importlib.metadata.version('{}')"


@pytest.mark.parametrize(("variable", "version"), [("1", "2.9.0"), ("0", None), (None, None)])
def test_libraries_that_ask_for_the_version(ask, monkeypatch, variable, version):
    if variable is not None:
        monkeypatch.setenv("OPTIMUM_NEURON_XLA", variable)
    for name in ("torch_xla", "torch-xla"):
        if version is None:
            with pytest.raises(importlib.metadata.PackageNotFoundError):
                ask(VERSION.format(name), "acme")
        else:
            assert ask(VERSION.format(name), "acme")["version"] == version
    names = {one.metadata["Name"] for one in importlib.metadata.distributions()}
    assert "torch_xla" not in names and "pytest" in names, "nothing is added to lists of distributions"


def test_only_the_real_distribution_is_refused(ask, monkeypatch, tmp_path):
    monkeypatch.setenv("OPTIMUM_NEURON_XLA", "1")
    refuse_beside("torch-xla", "torch_xla")
    metadata = tmp_path / "torch_xla-2.8.1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch_xla\nVersion: 2.8.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"2\.8\.1"):
        refuse_beside("torch-xla", "torch_xla")
