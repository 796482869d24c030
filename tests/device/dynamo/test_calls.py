"""Graphs of torch.compile have simulated time: in profiles, in the usage of cores, and in tools."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.device import placement
from optimum_neuron.device.dynamo import MODEL, calls
from optimum_neuron.profiling import record
from optimum_neuron.runtime import TIMELINE
from optimum_neuron.simulator import call_cost, core_usage
from optimum_neuron.simulator.work import GraphWork, Step, Work
from tests.device.dynamo.conftest import compiled
from tests.waiting import in_threads


def two_layers():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8)).to("neuron")


def compiled_graphs(profile):
    """Without eager operators, which are separate."""
    return [graph for graph in profile.graphs if graph.model == MODEL]


def test_forward_and_backward_are_timed_operator_by_operator():
    step, x = compiled(two_layers()), torch.rand(4, 64, device="neuron")
    with record("training") as recorder:
        for _ in range(2):
            step(x).sum().backward()
    profile = recorder.profile()
    forward, backward = graphs = compiled_graphs(profile)
    assert [(graph.graph.split()[0], graph.num_calls) for graph in graphs] == [("forward", 2), ("backward", 2)]
    assert backward.flops > forward.flops == 2 * 4 * (64 * 256 + 256 * 8) and forward.path_us == 0
    assert sum(one.time_us for one in forward.operators) + forward.launch_us == pytest.approx(forward.device_us)
    assert {"0", "2"} <= {one.module_path for one in forward.operators}
    (core,) = profile.cores
    assert core.num_calls == sum(graph.num_calls for graph in profile.graphs) and core.busy_us == pytest.approx(
        profile.device_us
    )
    assert core.hbm_bytes["kv_cache"] >= 4 * (64 * 256 + 256 * 8)
    assert profile.simulated


def test_graph_inputs_and_outputs_use_hbm_traffic():
    add = compiled(lambda x: x + 1)
    with record("add") as recorder:
        add(torch.ones(1 << 20, device="neuron"))
    (graph,) = compiled_graphs(recorder.profile())
    (report,) = torch.neuron.compile_report().graphs
    assert graph.device_us > graph.parts_us["dma"] >= report.estimate.least_us > 0
    assert graph.hbm_bytes == 4 << 20  # the result is written, not read
    assert {one.operator for one in graph.operators} == {"aten.add", "results"}


@pytest.mark.full(days=2)
def test_tools_read_time_of_graph():
    double = compiled(lambda x: x * 2)
    x = torch.ones(16, device="neuron")
    double(x)
    (track,) = [track for track in TIMELINE.tracks() if track.model == MODEL]
    graph = list(track.num_calls)[-1]
    cost, before = call_cost(track, graph), busy()
    double(x)
    assert 0 < cost.launch_us < cost.device_us and cost.flops == 16
    assert busy() - before == pytest.approx(cost.device_us)
    assert track.core_ids == placement.core(0).core_ids


def busy():
    return sum(core.busy_us_by_model.get(MODEL, 0.0) for core in core_usage())


def test_failing_call_is_counted_as_error(monkeypatch):
    double = compiled(lambda x: x * 2)
    x = torch.ones(16, device="neuron")
    double(x)
    (track,) = [track for track in TIMELINE.tracks() if track.model == MODEL]
    errors, counts = track.errors, track.num_calls
    with monkeypatch.context() as patch:
        patch.setattr(torch.fx.GraphModule, "__call__", broken)
        with pytest.raises(ZeroDivisionError):
            double(x)
    assert track.errors.get("completed_with_err", 0) == errors.get("completed_with_err", 0) + 1
    assert track.num_calls == counts


def broken(*_):
    raise ZeroDivisionError


def test_equal_frame_ids_keep_separate_work():
    works = [GraphWork(name="one", steps=(Step(name="aten.add", work=Work(flops=count)),)) for count in (1, 2)]
    (track, first), (_, second) = (calls.Calls("inference 99/0", work).on(0) for work in works)
    assert (first, second) == ("inference 99/0", "inference 99/0 #2")
    assert calls.Calls("inference 99/0", works[1]).on(0) == (track, second)
    assert [track.works[name] for name in (first, second)] == works


def test_threads_share_one_track():
    results = []
    work = GraphWork(name="one", steps=())
    in_threads(*[lambda: results.append(calls.Calls("forward 98/0", work).on(0))] * 4)
    assert len(set(results)) == 1


def test_graphs_of_host_tensors_use_no_core():
    double = compiled(lambda x: x * 2)
    with record("host") as recorder:
        double(torch.ones(4))
    assert recorder.num_calls == 0
