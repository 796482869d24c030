"""Lanes of the simulated cores in torch.profiler: where calls and operators are, without a profile."""

from __future__ import annotations

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.profiling import SIMULATED, torch_profiler
from optimum_neuron.profiling.torch_profiler import events
from optimum_neuron.runtime import Execution, Track
from optimum_neuron.simulator import call_cost
from optimum_neuron.simulator.work import GraphWork, Step, Work

WORK = GraphWork(name="g", steps=tuple(Step(name=name, work=Work(state_bytes=1 << 24)) for name in ("a", "b")))


def track(cores=(0,)):
    one = Track(None, model="m", instance=INSTANCES["trn1.2xlarge"], core_ids=cores, auto_cast="none")
    one.works["g"] = WORK
    return one


def test_calls_of_one_core_wait_for_each_other():
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
    lanes = list(events([(track(), Execution("g", 1, 0, 10))] * 3))
    assert [event.is_call for event in lanes] == [True, False, False, False, True, True]
