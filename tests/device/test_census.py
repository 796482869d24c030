"""Eager operators have simulated time: in profiles, in the usage of cores, and in tools."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from optimum_neuron.device import MODEL, placement
from optimum_neuron.device.census import ASSUMPTION, Census
from optimum_neuron.device.dynamo import calls
from optimum_neuron.profiling import profile_script, record
from optimum_neuron.runtime import OBSERVERS, TIMELINE, Publisher
from optimum_neuron.simulator import call_cost


def recorded(function):
    """The eager operators that a function calls, as graphs of a profile, by name."""
    with record("test") as recorder:
        function()
    executions = recorder.num_calls
    graphs = recorder.profile().graphs if executions else ()
    return {operator_of(graph): graph for graph in graphs if graph.model == MODEL}


def operator_of(graph):
    return graph.graph.split()[0].partition(".")[0]


def device(*shape, **options):
    return torch.rand(*shape, **options).to("neuron")


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, [(64, 128), (128, 32)]),
        (torch.relu, [(1000,)]),
        (lambda x: x.sum(-1), [(16, 64)]),
        (lambda x: x.add_(1), [(16, 64)]),
    ],
)
def test_operator_time_equals_its_compiled_graph(function, shapes):
    inputs = [device(*shape) for shape in shapes]
    (eager,) = recorded(lambda: function(*inputs)).values()
    compiled_fn = torch.compile(function, backend="neuron", options={"optlevel": "1"})
    compiled_fn(*inputs)
    with record("compiled") as recorder:
        compiled_fn(*inputs)
    (graph,) = [graph for graph in recorder.profile().graphs if graph.model == calls.MODEL]
    assert (eager.device_us, eager.launch_us) == (graph.device_us, graph.launch_us)
    assert (eager.flops, eager.hbm_bytes) == (graph.flops, graph.hbm_bytes)
    assert eager.device_us > eager.launch_us > 0


def test_views_and_host_copies_take_no_device_time():
    x, host = device(4, 8), torch.ones(4, 8)

    def views():
        x.t()[0].unsqueeze(0).detach()
        x.view(2, 16).expand(3, 2, 16)
        x.copy_(host)
        x.cpu()

    assert recorded(views) == {}


def test_training_step_is_in_profile_operator_by_operator():
    layer, x = torch.nn.Linear(64, 32).to("neuron"), device(8, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step():
        layer(x).relu().sum().backward()
        optimizer.step()

    step()
    with record("training") as recorder:
        step()
        step()
    profile = recorder.profile()
    graphs = {operator_of(graph): graph for graph in profile.graphs}
    assert {"addmm", "relu", "sum", "threshold_backward", "mm"} <= set(graphs)
    assert {graph.model for graph in profile.graphs} == {MODEL}
    assert graphs["addmm"].num_calls == 2 and graphs["addmm"].flops == 2 * 8 * 64 * 32
    assert sum(graph.num_calls for graph in profile.graphs) == len(profile.calls) == profile.cores[0].num_calls
    assert profile.cores[0].busy_us == pytest.approx(profile.device_us)
    assert ASSUMPTION in profile.assumptions and profile.simulated


def test_compiled_graphs_are_not_counted_twice():
    step = torch.compile(lambda x: (x * 2).relu(), backend="neuron", options={"optlevel": "1"})
    x = device(16)
    step(x)
    assert recorded(lambda: step(x)) == {}


def test_nothing_is_counted_without_observer():
    x = device(17)
    x + 1
    assert not any("[17]" in graph for graph in operators().num_calls)
    with OBSERVERS.watching():
        x + 1
        OBSERVERS.collect()
    x + 1
    OBSERVERS.collect()
    (graph,) = [graph for graph in operators().num_calls if "[17]" in graph]
    assert operators().num_calls[graph] == 1
    cost = call_cost(operators(), graph)
    assert cost.flops == 17 and 0 < cost.launch_us < cost.device_us
    assert operators().core_ids == placement.core(0).core_ids


def operators():
    (track,) = [track for track in TIMELINE.tracks() if track.model == MODEL and track.core_ids == (0,)]
    return track


def test_watching_tool_reads_times(monkeypatch, tmp_path):
    instance, x = placement.core(0).instance, device(23)
    publisher = Publisher()
    publisher._instances[tmp_path] = instance
    for watched in (True, False):
        monkeypatch.setattr("optimum_neuron.runtime.publisher.is_watched", lambda folder, watched=watched: watched)
        publisher._count_costs()  # one run of the thread's loop, once per second
        x + 1
        publisher._count_costs()
        models = publisher._status(tmp_path, instance).models
        (graph,) = [one for model in models if model.name == MODEL for one in model.graphs if "[23]" in one.name]
        assert graph.num_calls == 1 and graph.device_us > graph.launch_us > 0 and graph.flops == 23


def test_queued_operators_are_counted_when_they_run():
    x = device(19)

    def queued():
        with torch.neuron.adaptive_eager(True):
            (x * 2 + 1).sum().item()

    assert {graph.num_calls for graph in recorded(queued).values()} == {1}


def test_failing_operator_is_not_counted():
    def fails():
        with pytest.raises(RuntimeError):
            torch.mm(device(3, 4), device(3, 4))

    assert "mm" not in recorded(fails)


def test_operators_with_different_sizes_have_separate_times():
    x = device(64, 8)
    with record("sums") as recorder:
        x.sum(0), x.sum(1)
    graphs = recorder.profile().graphs
    assert [graph.graph for graph in graphs] == ["sum.dim_IntList float32[64,8]", "sum.dim_IntList float32[64,8] #2"]
    assert graphs[0].device_us < graphs[1].device_us


def test_data_dependent_sizes_are_reported_unknown():
    x = device(5, 7)
    (graph,) = recorded(lambda: torch.nonzero(x)).values()
    assert [one.is_unknown for one in graph.operators] == [True] and graph.device_us == graph.launch_us


def test_calls_beyond_buffer_are_reported(caplog, monkeypatch):
    monkeypatch.setattr(placement, "claimed", lambda: ())
    functions = SimpleNamespace(neuron_take_operators=lambda *_: 0, neuron_take_lost_operators=lambda: 3)
    Census(functions).collect()
    assert "3 eager operators" in caplog.text


SCRIPT = """
import torch
layer = torch.nn.Linear(64, 64).to("neuron")
compiled = torch.compile(layer, backend="neuron", options={"optlevel": "1"})
for step in (layer, layer, compiled, compiled):
    step(torch.ones(8, 64, device="neuron")).sum().backward()
"""


@pytest.mark.full(days=2)
def test_script_has_profile_of_operators_and_of_compiled_graphs(tmp_path, monkeypatch):
    # A separate instance: this process has cores of the default one.
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.24xlarge")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    profile = profile_script(script).profile
    calls_of = {(graph.model, operator_of(graph)): graph.num_calls for graph in profile.graphs}
    assert [calls_of[name] for name in ((MODEL, "addmm"), (calls.MODEL, "forward"), (calls.MODEL, "backward"))] == [
        2
    ] * 3
    assert profile.device_us > 0 and profile.rows()[0].time_us > 0
