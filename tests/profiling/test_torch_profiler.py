"""Lanes of the simulated cores in torch.profiler: calls and operators with their simulated time."""

from __future__ import annotations

import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.profiling import torch_profiler
from optimum_neuron.profiling.torch_profiler import SIMULATED, events
from optimum_neuron.runtime.timeline import Execution, Track
from optimum_neuron.simulator.clock import call_cost
from optimum_neuron.simulator.work import GraphWork, Step, Work
from optimum_neuron.tracing import trace

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
WORK = GraphWork(name="g", steps=tuple(Step(name=name, work=Work(state_bytes=1 << 24)) for name in ("a", "b")))


def track(cores=(0,)):
    one = Track(None, model="m", instance=INSTANCES["trn1.2xlarge"], core_ids=cores, auto_cast="none")
    one.works["g"] = WORK
    return one


def test_calls_of_a_core_wait_for_each_other_and_those_of_others_do_not():
    first, second = track((0,)), track((1,))
    executions = [(one, Execution("g", 1, at_ns, at_ns + 10)) for one, at_ns in ((first, 0), (first, 20), (second, 20))]
    calls = [event for event in events(executions) if event.is_call]
    begin_ns, time_ns = calls[0].started_ns, round(1e3 * call_cost(first, "g").device_us)
    assert [(call.core_id, call.started_ns - begin_ns, call.ended_ns - call.started_ns) for call in calls] == [
        (0, 0, time_ns),
        (0, time_ns, time_ns),
        (1, 20, time_ns),
    ]


def test_operators_fill_their_call():
    call, *operators = events([(track(), Execution("g", 1, 0, 10))])
    assert [event.name for event in operators] == [f"{name}{SIMULATED}" for name in ("launch", "a", "b")]
    times = [call.started_ns, *(event.ended_ns for event in operators)]
    assert times == [*(event.started_ns for event in operators), call.ended_ns] and not operators[0].is_call


def test_long_profiles_keep_their_calls(monkeypatch):
    monkeypatch.setattr(torch_profiler, "MAX_OPERATOR_EVENTS", 2)
    found = list(events([(track(), Execution("g", 1, 0, 10))] * 3))
    assert [event.is_call for event in found] == [True, False, False, False, True, True]


@pytest.fixture
def step():
    torch.neuron.init()
    compiled = torch.compile(torch.nn.Linear(64, 64).to("neuron"), backend="neuron", options={"optlevel": "1"})
    x = torch.ones(8, 64, device="neuron")
    compiled(x)
    return lambda: compiled(x).sum().backward()


def lanes(profiled, path):
    """Events of the cores in the exported trace, and the names of their processes and threads."""
    profiled.export_chrome_trace(str(path))
    found = json.loads(path.read_text())["traceEvents"]
    simulated = [event for event in found if event.get("args", {}).get("simulated") == "true"]
    pids = {event["pid"] for event in simulated}
    names = {
        event["args"]["name"]
        for event in found
        if event["ph"] == "M" and event["pid"] in pids and event["args"].get("name")
    }
    return simulated, names


def test_the_exported_trace_has_a_lane_with_the_simulated_times(step, tmp_path):
    with profile(activities=BOTH) as profiled:
        step()
        step()
    found, names = lanes(profiled, tmp_path / "trace.json")
    calls = [event for event in found if event["cat"] == "gpu_user_annotation"]
    operators = [event for event in found if event["cat"] == "kernel"]
    assert [event["name"].split()[0] for event in calls] == ["forward", "backward"] * 2
    assert any("NeuronCore" in name and "simulated" in name for name in names)
    assert sum(event["dur"] for event in calls) == pytest.approx(sum(event["dur"] for event in operators), abs=0.1)
    table = profiled.key_averages()
    device_us = sum(
        row.self_device_time_total for row in table if row.key.endswith(SIMULATED) and not row.is_user_annotation
    )
    assert device_us == pytest.approx(sum(event["dur"] for event in calls), abs=0.1)
    assert all(event["name"].endswith(SIMULATED) for event in found)


def test_a_profile_of_the_cpu_alone_has_no_lane(step, tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    assert lanes(profiled, tmp_path / "trace.json")[0] == []


def test_a_profile_without_compiled_graphs_has_no_lane(tmp_path):
    with profile(activities=BOTH) as profiled:
        torch.ones(2, device="neuron") + 1
    assert lanes(profiled, tmp_path / "trace.json")[0] == []


def test_a_schedule_records_its_active_steps(step, tmp_path):
    with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2)) as profiled:
        for _ in range(4):
            step()
            profiled.step()
    found, _ = lanes(profiled, tmp_path / "trace.json")
    assert sum(event["cat"] == "gpu_user_annotation" for event in found) == 4


def test_traced_modules_are_in_the_lane(tmp_path):
    torch.neuron.init()
    x = torch.rand(4, 64)
    traced = trace(torch.nn.Linear(64, 32), x, compiler_args="-O1")
    with profile(activities=BOTH) as profiled:
        traced(x)
    found, _ = lanes(profiled, tmp_path / "trace.json")
    assert f"aten.linear{SIMULATED}" in {event["name"] for event in found}


def test_what_goes_wrong_is_a_warning(step, monkeypatch, tmp_path, capfd):
    def broken(number):
        real(number)
        raise ZeroDivisionError("broken on purpose")

    real = torch_profiler.stop
    monkeypatch.setattr(torch_profiler, "stop", broken)
    with profile(activities=BOTH) as profiled:
        step()
    assert "broken on purpose" in capfd.readouterr().err
    assert lanes(profiled, tmp_path / "trace.json")[0] == []
