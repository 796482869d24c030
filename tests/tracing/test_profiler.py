"""The profiler entry: a timeline of the host, and no invented one of the core."""

from __future__ import annotations

import json

import pytest
import torch

from optimum_neuron.errors import ConfigError
from optimum_neuron.tracing import profile, trace
from tests.tracing.conftest import FAST


def events(path):
    return {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}


def test_a_trace_of_the_host_shows_the_operator(mlp, tmp_path):
    x = torch.rand(5, 12)
    model = trace(mlp, x, compiler_args=FAST)
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path / "logs") as recorded:
        model(x)
    assert recorded.path == tmp_path / "logs" / "host_trace.json"
    assert "neuron::forward" in events(recorded.path)


def test_it_starts_when_it_is_told_to(tmp_path):
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path, auto_start=False) as recorded:
        torch.ones(2).sin()
        recorded.start()
        torch.ones(2).cos()
    assert "aten::cos" in events(recorded.path) and "aten::sin" not in events(recorded.path)
    with profile(profile_type="trace", neuron_tensorboard_plugin_dir=tmp_path / "none", auto_start=False):
        pass
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("kind", "message"), [("operator", "no engines to measure"), ("trase", "did you mean 'trace'")]
)
def test_times_of_a_core_are_refused(kind, message):
    with pytest.raises(ConfigError, match=message):
        profile(profile_type=kind)
    with pytest.raises(ConfigError, match="profile_type='operator'"):
        profile()


def test_arguments_without_effect_are_said():
    with pytest.warns(UserWarning, match="port, traced_only"):
        profile(profile_type="trace", port=1, traced_only=True)
