"""Lanes of the simulated cores in torch.profiler: exported traces and tables have the simulated times."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from optimum_neuron.device import census
from optimum_neuron.device.dynamo import calls as calls_of
from optimum_neuron.profiling import SIMULATED, torch_profiler
from optimum_neuron.tracing import trace

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


@pytest.fixture
def step():
    compiled_model = torch.compile(torch.nn.Linear(64, 64).to("neuron"), backend="neuron", options={"optlevel": "1"})
    x = torch.ones(8, 64, device="neuron")
    compiled_model(x)
    return lambda: compiled_model(x).sum().backward()


def lanes(run, folder, **options):
    """Profile a run: events of the cores in the trace, names of their processes and threads, and the profile."""
    with profile(**{"activities": BOTH, **options}) as profiled:
        run(profiled)
    profiled.export_chrome_trace(str(folder / "trace.json"))
    result = json.loads((folder / "trace.json").read_text())["traceEvents"]
    simulated = [event for event in result if event.get("args", {}).get("simulated") == "true"]
    pids = {event["pid"] for event in simulated}
    names = {
        event["args"]["name"]
        for event in result
        if event["ph"] == "M" and event["pid"] in pids and event["args"].get("name")
    }
    return simulated, names, profiled


def test_exported_trace_has_lane_with_simulated_times(step, tmp_path):
    result, names, profiled = lanes(lambda _: (step(), step()), tmp_path)
    calls = [event for event in result if event["cat"] == "gpu_user_annotation"]
    operators = [event for event in result if event["cat"] == "kernel"]
    graphs = [event["name"].split()[0] for event in calls if calls_of.MODEL in event["name"]]
    assert graphs == ["forward", "backward"] * 2
    assert any("NeuronCore" in name and "simulated" in name for name in names)
    assert sum(event["dur"] for event in calls) == pytest.approx(sum(event["dur"] for event in operators), abs=0.1)
    table = profiled.key_averages()
    device_us = sum(
        row.self_device_time_total for row in table if row.key.endswith(SIMULATED) and not row.is_user_annotation
    )
    assert device_us == pytest.approx(sum(event["dur"] for event in calls), abs=0.1)
    assert all(event["name"].endswith(SIMULATED) for event in result)


def test_profile_of_cpu_alone_has_no_lane(step, tmp_path):
    assert lanes(lambda _: step(), tmp_path, activities=[ProfilerActivity.CPU])[0] == []


def test_eager_operators_are_in_lane(tmp_path):
    x = torch.ones(4096, device="neuron")
    result, *_ = lanes(lambda _: x + 1, tmp_path)
    (call,) = [event for event in result if event["cat"] == "gpu_user_annotation"]
    assert call["name"] == f"add.Tensor float32[4096] of {census.MODEL}{SIMULATED}" and call["dur"] > 0
    assert f"aten.add{SIMULATED}" in {event["name"] for event in result}


def test_profile_without_work_of_core_has_no_lane(tmp_path):
    assert lanes(lambda _: torch.ones(2) + 1, tmp_path)[0] == []


def test_schedule_records_its_active_steps(step, tmp_path):
    def four_steps(profiled):
        for _ in range(4):
            step()
            profiled.step()

    result, *_ = lanes(four_steps, tmp_path, schedule=schedule(wait=1, warmup=1, active=2))
    calls = [event for event in result if event["cat"] == "gpu_user_annotation"]
    assert sum(calls_of.MODEL in event["name"] for event in calls) == 4


def test_traced_modules_are_in_lane(tmp_path):
    x = torch.rand(4, 64)
    traced_model = trace(torch.nn.Linear(64, 32), x, compiler_args="-O1")
    result, *_ = lanes(lambda _: traced_model(x), tmp_path)
    assert f"aten.linear{SIMULATED}" in {event["name"] for event in result}


def test_failures_are_warnings(step, monkeypatch, tmp_path, capfd):
    def broken(number):
        real(number)
        raise ZeroDivisionError("broken on purpose")

    real = torch_profiler.stop
    monkeypatch.setattr(torch_profiler, "stop", broken)
    assert lanes(lambda _: step(), tmp_path)[0] == []
    assert "broken on purpose" in capfd.readouterr().err
