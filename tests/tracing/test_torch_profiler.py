"""torch.profiler with the vendor's options: the calls inside the profile, on the cores that were asked for."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import NeuronConfig, NeuronProfiler, ProfileMode, trace
from optimum_neuron.tracing.torch_profiler import DEVICE_FILE, HOST_FILE
from tests.tracing.conftest import FAST


def profiled(model, x, **options):
    """Call before and inside a profile."""
    config = NeuronConfig(**options)
    exporter = NeuronProfiler(config)
    model(x)
    with torch.profiler.profile(
        activities=[ProfilerActivity.CPU], experimental_config=config, on_trace_ready=exporter.export_trace
    ):
        model(x)
        model(x)


def names(path):
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]


def test_both_traces_have_calls_inside_profile(mlp, tmp_path):
    x = torch.rand(5, 12)
    profiled(trace(mlp, x, compiler_args=FAST), x, modes=[ProfileMode.DEVICE], profile_output_dir=tmp_path)
    assert names(tmp_path / HOST_FILE).count("neuron::forward") == 2
    assert names(tmp_path / DEVICE_FILE).count("graph") == 2


def test_other_cores_are_left_out(mlp, tmp_path):
    x = torch.rand(5, 12)
    with pytest.warns(UserWarning, match="no compiled program ran"):
        profiled(trace(mlp, x, compiler_args=FAST), x, profile_output_dir=tmp_path, capture_enabled_for_nc="1-3,5")
    assert (tmp_path / HOST_FILE).exists() and not (tmp_path / DEVICE_FILE).exists()


def test_last_events_of_each_core_are_kept(mlp, tmp_path):
    x = torch.rand(5, 12)
    model = trace(mlp, x, compiler_args=FAST)
    for limit, kept in ((1, 1), (5, 2)):
        profiled(model, x, profile_output_dir=tmp_path, max_events_per_nc=limit, capture_enabled_for_nc="0-1")
        assert names(tmp_path / DEVICE_FILE).count("graph") == kept
    with pytest.raises(ConfigError) as excinfo:
        NeuronConfig(max_events_per_nc=0)
    assert excinfo.value.details == {"option": "max_events_per_nc", "value": 0}


def test_unrecorded_modes_are_named():
    with pytest.warns(UserWarning, match="CPU_UTIL"):
        NeuronConfig(modes=[ProfileMode.RUNTIME, ProfileMode.CPU_UTIL])
    with pytest.raises(ConfigError) as excinfo:
        NeuronConfig(modes=[ProfileMode.HOST_MEMORY])
    assert excinfo.value.details == {"modes": ["ProfileMode.HOST_MEMORY"]}


@pytest.mark.parametrize("cores", ["", "a", "1-", "0,,2"])
def test_invalid_core_ids_are_refused(cores):
    with pytest.raises(ConfigError):
        NeuronConfig(capture_enabled_for_nc=cores)
