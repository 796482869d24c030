"""The tools under the names of the real ones."""

from __future__ import annotations

import importlib
import tomllib

import pytest

from tests.tools.conftest import ROOT

SCRIPTS = tomllib.loads((ROOT / "sdk" / "pyproject.toml").read_text())["project"]["scripts"]


def test_sdk_installs_them():
    assert SCRIPTS == {
        "inference_demo": "optimum_neuron.neuronx_distributed_inference.demo:main",
        "nccom-test": "optimum_neuron.tools.nccom_test:main",
        "neuron-bench": "optimum_neuron.tools.bench:main",
        "neuron-cc": "optimum_neuron.tools.neuron_cc:main",
        "neuron-explorer": "optimum_neuron.tools.profile:main",
        "neuron-ls": "optimum_neuron.tools.ls:main",
        "neuron-monitor": "optimum_neuron.tools.monitor:main",
        "neuron-monitor-prometheus": "optimum_neuron.tools.prometheus:main",
        "neuron-monitor-prometheus.py": "optimum_neuron.tools.prometheus:main",
        "neuron-profile": "optimum_neuron.tools.profile:neuron_profile",
        "neuron-top": "optimum_neuron.tools.top:main",
        "neuron_parallel_compile": "optimum_neuron.tools.parallel_compile:main",
        "neuronx-cc": "optimum_neuron.tools.neuronx_cc:main",
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_has_page_of_help_under_its_name(name, capsys):
    module, _, function = SCRIPTS[name].partition(":")
    with pytest.raises(SystemExit) as excinfo:
        getattr(importlib.import_module(module), function)(["--help"])
    assert excinfo.value.code == 0 and f"usage: {name.removesuffix('.py')} " in capsys.readouterr().out
