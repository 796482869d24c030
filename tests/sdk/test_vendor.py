"""Our packages under the vendor's names: import cost, and that both distributions cannot be installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.tree import ROOT

HEAVY = {
    "torch_neuronx": {"torch._inductor", "torch._dynamo", "transformers"},
    "optimum.neuron, optimum.neuron.modeling, optimum.neuron.cache, optimum.neuron.models.training, "
    "optimum.exporters.neuron": {"torch", "transformers", "numpy", "accelerate"},
}
"""Imports to modules that they must not bring."""


@pytest.mark.parametrize("modules", HEAVY)
def test_importing_is_light(modules):
    program = f"import sys, {modules}; print(sorted({HEAVY[modules]} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "sdk"
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        ("optimum-neuron", "optimum.neuron"),
        ("torch-neuron", "torch_neuron"),
        ("torch-neuronx", "torch_neuronx"),
        ("neuronx-cc", "neuronxcc"),
        ("libneuronxla", "libneuronxla"),
        ("neuronx-distributed", "neuronx_distributed"),
        ("nki", "nki"),
        ("transformers-neuronx", "transformers_neuronx"),
        ("neuronx-distributed-inference", "neuronx_distributed_inference"),
    ],
)
def test_sdk_refuses_next_to_vendor_distribution(distribution, package, tmp_path, monkeypatch):
    metadata = tmp_path / f"{distribution.replace('-', '_')}-2.21.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 2.21.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = ROOT.joinpath("sdk", *package.split("."), "__init__.py")
    spec = importlib.util.spec_from_file_location(package, path)
    assert spec is not None and spec.loader is not None
    with pytest.raises(ImportError, match=rf"{distribution} 2\.21\.0 are both installed.*pip uninstall"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
