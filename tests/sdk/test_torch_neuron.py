"""The vendor's names for Inf1: what they are, the instance of a script, and a script in a process of its own."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from optimum_neuron import tracing
from optimum_neuron.hardware import resolve_instance
from optimum_neuron.tracing import inf1
from tests.tree import ROOT

SCRIPT = """
import torch, torch.neuron, torch_neuron
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 1, 3)
    def forward(self, x):
        return self.conv(x) + 1
net, x = Net().eval(), torch.rand(1, 1, 3, 3)
model = torch.neuron.trace(net.forward, x)
model.save("net.pt")
with torch_neuron.experimental.neuron_cores_context(start_nc=2, nc_count=2):
    model = torch.jit.load("net.pt")
print(torch_neuron.is_available(), torch.allclose(model(x), net(x), rtol=1e-2, atol=1e-2))
"""


@pytest.fixture
def package(sdk, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_neuron"]:
        monkeypatch.delitem(sys.modules, name)
    yield importlib.import_module("torch_neuron")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch_neuron"]:
        sys.modules.pop(name)


def test_names_are_those_of_the_package(package):
    assert sorted(package.__all__) == sorted(
        ["DataParallel", "Optimization", "__version__", "analyze_model", "experimental"]
        + ["get_supported_operations", "is_available", "trace"]
    )
    assert package.trace is inf1.trace and package.DataParallel is tracing.DataParallel
    assert package.experimental.set_multicore is tracing.set_multicore


@pytest.mark.parametrize(
    ("variables", "instance"),
    [
        ({}, "inf1.xlarge"),
        ({"NEURON_RT_NUM_CORES": "8"}, "inf1.6xlarge"),
        ({"NEURON_RT_VISIBLE_CORES": "4-5"}, "inf1.6xlarge"),
        ({"NEURONCORE_GROUP_SIZES": "2,2"}, "inf1.xlarge"),
        ({"OPTIMUM_NEURON_INSTANCE": "inf2"}, "inf2.xlarge"),
    ],
)
def test_a_script_that_imports_it_runs_on_inf1(package, variables, instance):
    assert resolve_instance(environ=variables).value.name == instance


@pytest.mark.full(days=3)
def test_published_script_runs(tmp_path):
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}", "OPTIMUM_NEURON_HOME": str(tmp_path), "NEURON_CC_FLAGS": "-O1"}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environ)
    assert result.stdout.strip() == "True True", result.stderr
