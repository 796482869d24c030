"""The profiler entry: a timeline of the host as it is, one of the cores as it is simulated."""

from __future__ import annotations

import functools
import json

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import profile, trace
from tests.raising import raises
from tests.tracing.conftest import FAST


def events(path):
    return {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}


@pytest.fixture
def call(mlp):
    """Call a traced model."""
    x = torch.rand(5, 12)
    return functools.partial(trace(mlp, x, compiler_args=FAST), x)


def test_trace_of_host_shows_operator(call, tmp_path):
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path / "logs") as recorded:
        call()
    assert recorded.path == tmp_path / "logs" / "host_trace.json"
    assert "neuron::forward" in events(recorded.path)


def test_profiler_starts_on_request(tmp_path):
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path, auto_start=False) as recorded:
        torch.ones(2).sin()
        recorded.start()
        torch.ones(2).cos()
    assert "aten::cos" in events(recorded.path) and "aten::sin" not in events(recorded.path)
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path / "none", auto_start=False):
        pass
    assert not (tmp_path / "none").exists()


def test_engines_are_shown_by_default(call, tmp_path):
    with profile(neuron_tensorboard_plugin_dir=tmp_path / "logs") as recorded:
        call()
    assert recorded.path == tmp_path / "logs" / "device_trace.json"
    assert json.loads(recorded.path.read_text())["otherData"]["simulated"] is True
    assert {"thread_name", "HBM", "launch"} <= events(recorded.path)


def test_idle_engines_leave_no_file(tmp_path):
    with pytest.warns(UserWarning, match="no compiled program ran"), profile(neuron_tensorboard_plugin_dir=tmp_path):
        torch.ones(2).sin()
    assert list(tmp_path.iterdir()) == []


def test_unknown_type_is_refused_and_arguments_without_effect_are_reported():
    with raises(ConfigError, option="profile_type", value="trase"):
        profile(profile_type="trase")
    with pytest.warns(UserWarning, match="port, traced_only"):
        profile(profile_type="trace", port=1, traced_only=True)
