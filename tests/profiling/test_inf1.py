"""The profile of NeuronCore Pipeline matches the estimate of the same program."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.profiling import profile_neff
from optimum_neuron.simulator import estimate
from optimum_neuron.tracing import inf1


def test_pipeline_profile_matches_estimate(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf1.xlarge")
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4))).eval()
    pipeline = ["--neuroncore-pipeline-cores", "2"]
    inf1.trace(layers, torch.rand(2, 64), compiler_args=pipeline, compiler_workdir=tmp_path).close()
    (neff,) = tmp_path.rglob("*.neff")
    profile, report = profile_neff(neff), estimate(neff, instance="inf1.xlarge", data_parallel_size=1)
    assert (profile.graphs[0].kind, report.num_cores.value, len(profile.graphs)) == (report.kind, 2, 2)
    assert profile.device_us == pytest.approx(1e3 * (report.latency_ms.value - report.parts_ms["graph"]["host"]))
    for graph in profile.graphs:
        assert sum(one.time_us for one in graph.operators) + graph.launch_us == pytest.approx(graph.device_us)
    assert any("2 stages of NeuronCore Pipeline" in note for note in profile.notes)
    busy = estimate(neff, instance="inf1.xlarge", data_parallel_size=1, batches_in_flight=8)
    assert 1.5 < busy.throughput_per_s.value / report.throughput_per_s.value < 2.1
