from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import optimum_neuron
from optimum_neuron.version import __version__

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    """Run the module from the source tree, whether or not the distribution is installed."""
    path = ROOT / "sdk" / "optimum" / "neuron" / "__init__.py"
    spec = importlib.util.spec_from_file_location("optimum.neuron", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_versions_of_both_distributions_are_the_same() -> None:
    project = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert project["dependencies"] == [f"optimum-neuron-sim=={__version__}"]


@pytest.mark.parametrize("folder", ["optimum", "optimum/commands", "optimum/commands/register", "sdk/optimum"])
def test_namespace_folders_hold_no_init(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()


def test_public_names_are_those_of_optimum_neuron() -> None:
    module = load()
    assert module.__all__ == list(optimum_neuron.__all__)
    assert set(module.__all__) <= set(dir(module))
    for name in module.__all__:
        assert getattr(module, name) is getattr(optimum_neuron, name)


def test_an_unknown_name_is_an_attribute_error_of_this_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'optimum\.neuron' has no attribute 'NeuronModelForCausalLn'"):
        load().NeuronModelForCausalLn  # noqa: B018


def test_it_refuses_beside_the_vendor_s_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = tmp_path / "optimum_neuron-0.4.5.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: optimum-neuron\nVersion: 0.4.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"optimum-neuron 0\.4\.5 are both installed.*pip uninstall"):
        load()


def test_importing_it_is_light() -> None:
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("optimum.neuron", {str(ROOT / "sdk/optimum/neuron/__init__.py")!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
print(sorted({{"torch", "transformers", "numpy"}} & set(sys.modules)))
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert output.strip() == "[]"
