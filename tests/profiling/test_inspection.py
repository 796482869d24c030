"""Profiles of whole processes, as NEURON_RT_INSPECT_ENABLE asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from optimum_neuron.profiling import Profile

SCRIPT = """
import torch
from optimum_neuron.tracing import trace

model = trace(torch.nn.Linear(4, 2), torch.rand(1, 4), compiler_args="-O1")
model(torch.rand(1, 4))
"""


@pytest.mark.full(days=3)
def test_process_leaves_its_profile(tmp_path):
    environ = {**os.environ, "NEURON_RT_INSPECT_ENABLE": "1", "NEURON_RT_INSPECT_OUTPUT_DIR": "profiles"}
    environ |= {"NEURON_RT_LOG_LEVEL": "INFO", "OPTIMUM_NEURON_INSTANCE": "inf2.xlarge"}
    environ["OPTIMUM_NEURON_HOME"] = str(tmp_path / "home")  # models of this process may hold the cores of the other
    result = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (folder,) = (tmp_path / "profiles").iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["profile.json", "report.html", "trace.json"]
    profile = Profile.from_json((folder / "profile.json").read_text())
    assert profile.simulated and [graph.num_calls for graph in profile.graphs] == [1]
    assert "INFO optimum_neuron.runtime.loaded" in result.stderr and str(folder) in result.stderr
