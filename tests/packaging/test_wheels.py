"""The wheels: their contents, and an installation by a user."""

from __future__ import annotations

import json
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tree import ROOT, files

PARTS = {
    "optimum_neuron_sim": ("", ("optimum_neuron/", "optimum/commands/register/")),
    "optimum_neuron_sim_sdk": (
        "sdk/",
        (
            *("libneuronxla/", "neuronx_distributed/", "neuronx_distributed_inference/", "neuronxcc/", "nki/"),
            *("optimum/commands/neuron/", "optimum/exporters/", "optimum/neuron/"),
            *("torch_neuron/", "torch_neuronx/", "transformers_neuronx/"),
        ),
    ),
    "optimum_neuron_sim_vllm": ("sdk_vllm/", ("optimum_neuron_sim_vllm/",)),
    "optimum_neuron_sim_xla": ("sdk_xla/", ("optimum_neuron_sim_xla/",)),
}
"""Distribution: folder of its project, and folders that it installs."""
STARTS = {name: f"{name}.pth" for name in ("optimum_neuron_sim_vllm", "optimum_neuron_sim_xla")}
"""What Python runs at its start, so that `vllm` and `torch_xla` are found by those who may import them."""


@pytest.mark.parametrize("name", PARTS)
def test_wheel_holds_every_file_of_its_packages_and_no_other(wheels, name):
    project, folders = PARTS[name]
    with zipfile.ZipFile(wheels[name]) as wheel:
        held = {file for file in wheel.namelist() if ".dist-info/" not in file}
    actual = {file.removeprefix(project) for file in files() if file.startswith(project)}
    starts = {STARTS[name]} if name in STARTS else set()
    assert held == starts | {file for file in actual if file.startswith(folders)}


def test_data_and_sources_are_among_them(wheels):
    with zipfile.ZipFile(wheels["optimum_neuron_sim"]) as wheel:
        suffixes = {Path(file).suffix for file in wheel.namelist()}
        assert wheel.read("optimum_neuron/sources/support.json").startswith(b"{")
    assert {".json", ".cpp", ".h", ".js", ".css", ".typed"} <= suffixes


@pytest.mark.parametrize("name", PARTS)
def test_wheels_share_no_file_with_other_distributions(wheels, name):
    shared = ("optimum/", "optimum/commands/", "optimum/commands/register/", "optimum/exporters/")
    with zipfile.ZipFile(wheels[name]) as wheel:
        assert not {f"{folder}__init__.py" for folder in shared} & set(wheel.namelist())


@pytest.mark.full(days=3)
def test_modules_of_both_are_imported_from_wheels(venv_folder):
    code = """
import importlib, json
names = ["optimum_neuron", "optimum.neuron", "optimum.exporters.neuron", "torch_neuronx", "neuronxcc", "nki"]
names += ["libneuronxla", "neuronx_distributed", "neuronx_distributed_inference", "torch_neuron"]
names += ["transformers_neuronx"]
modules = {name: importlib.import_module(name) for name in names}
print(json.dumps({name: module.__file__ or list(module.__path__)[0] for name, module in modules.items()}))
"""
    files = json.loads(venv_folder.run(venv_folder.python, "-c", code))
    assert [file for file in files.values() if not Path(file).is_relative_to(venv_folder.home)] == []


@pytest.mark.full(days=7)  # the import compiles the device from the wheel's files, 50 s
def test_torch_xla_is_hidden_from_libraries_until_a_script_imports_it(venv_folder):
    code = """
import importlib.util
library = "seen = importlib.util.find_spec('torch_xla')"
exec(compile(library, "/x/site-packages/acme/__init__.py", "exec"))
import torch_xla
print(seen, torch_xla.__version__)
"""
    assert venv_folder.run(venv_folder.python, "-c", code).split() == ["None", "2.9.0"]


@pytest.mark.full(days=3)
def test_vllm_is_hidden_from_libraries_and_a_command(venv_folder):
    code = """
import importlib.util
library = "seen = importlib.util.find_spec('vllm')"
exec(compile(library, "/x/site-packages/acme/__init__.py", "exec"))
import vllm
print(seen, vllm.__version__)
"""
    assert venv_folder.run(venv_folder.python, "-c", code).split() == ["None", "0.11.0"]
    assert venv_folder.run(venv_folder.bin / "vllm", "--version").strip() == "0.11.0"


def test_distributions_with_a_start_are_built_alike():
    one, other = (ROOT / folder / "build_with_start.py" for folder in ("sdk_vllm", "sdk_xla"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.full(days=3)
def test_optimum_cli_has_commands(venv_folder):
    neuron = [venv_folder.python, "-m", "optimum.commands.optimum_cli", "neuron"]
    report = json.loads(venv_folder.run(*neuron, "doctor", "--json"))
    findings = {finding["check"]: finding for finding in report["findings"]}
    # The first is missing where the doctor finds no metadata of a distribution.
    assert findings["python"]["consequence"] == "supported (>=3.11)"
    assert "--sequence_length" in venv_folder.run(*neuron, "estimate", "--help")


@pytest.mark.full(days=3)
def test_commands_of_sdk_are_installed_and_run(venv_folder):
    scripts = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]["scripts"]
    assert [name for name in scripts if not (venv_folder.bin / name).is_file()] == []
    assert json.loads(venv_folder.run(venv_folder.bin / "neuron-ls", "--json-output"))
