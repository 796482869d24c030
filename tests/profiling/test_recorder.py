"""Recordings as profiles: several cores, several programs, unknown operators, traced modules."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import ConfigError
from optimum_neuron.profiling import Profile, record
from optimum_neuron.profiling.table import in_every_layer
from optimum_neuron.tracing import trace
from tests.encoders import save_tiny_encoder
from tests.raising import raises


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """A model on two cores."""
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    options = {"batch_size": 1, "sequence_length": 8, "optlevel": "1", "disable_validation": True}
    return NeuronModelForSequenceClassification.from_pretrained(
        folder, export=True, data_parallel_mode="all", **options
    )


def test_replicas_are_one_graph_on_several_cores(copies):
    with record("copies") as recorder:
        for _ in range(3):
            copies(input_ids=torch.ones(4, 8, dtype=torch.long))
    profile = recorder.profile()
    (graph,) = profile.graphs
    assert graph.num_calls == 12 == sum(core.num_calls for core in profile.cores)
    assert [core.core_id for core in profile.cores] == list(copies.copies.core_ids)
    assert profile.device_us == pytest.approx(12 * graph.device_us)
    assert profile.device_us == pytest.approx(sum(core.busy_us for core in profile.cores))
    for core in profile.cores:
        own = sorted((c.started_us, c.ended_us) for c in profile.calls if c.core_ids == (core.core_id,))
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(own, own[1:], strict=False))
    # Cores may work at once, and never longer than one after the other.
    assert profile.clock_us - profile.host_between_us <= profile.device_us + 1e-6


def recorded(model, num_tokens=1):
    """The recording of one call of `generate`."""
    with record() as recorder:
        model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=num_tokens)
    return recorder


def test_host_between_calls_is_measured(model):
    with record() as recorder:
        for _ in range(2):
            model.generate(torch.ones(2, 4, dtype=torch.long), max_new_tokens=1)
    profile = recorder.profile()
    assert profile.clock_us == pytest.approx(profile.device_us + profile.host_between_us)
    assert profile.host_between_us > 0 and profile.calls[0].started_us == 0


def test_traced_module_is_profiled():
    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    traced_model = trace(module, torch.rand(4, 64), compiler_args="-O1")
    with record("traced") as recorder:
        traced_model(torch.rand(4, 64))
    rows = recorder.profile().rows()
    assert {"aten.linear", "aten.gelu", "launch"} <= {row.operator for row in rows}
    assert {row.module_path for row in rows if row.operator == "aten.linear"} == {"*"}


def test_auto_cast_of_traced_module_follows_its_compile():
    module = torch.nn.Linear(512, 512)
    times = []
    for flags in ("-O1 --auto-cast none", "-O1 --auto-cast matmult"):
        traced_model = trace(module, torch.rand(512, 512), compiler_args=flags)
        with record("traced") as recorder:
            traced_model(torch.rand(512, 512))
        times.append(recorder.profile().graphs[0].parts_us["tensor"])
    assert times[0] == pytest.approx(4 * times[1])


def test_only_calls_inside_the_block_are_recorded(export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    _, recorder, _ = (recorded(model, num_tokens) for num_tokens in (2, 1, 2))
    profile = recorder.profile()
    assert [(graph.graph, graph.num_calls) for graph in profile.graphs] == [("prefill_16", 1)]


def test_closed_model_can_still_be_profiled(export_folder):
    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    recorder = recorded(model)
    model.loaded.close()
    del model
    assert recorder.profile().device_us > 0


def test_empty_recording_is_an_error():
    with record("nothing") as recorder:
        torch.ones(2) + 1
    with raises(ConfigError, profile="nothing"):
        recorder.profile()


def test_unknown_operators_are_counted_with_their_share(model):
    profile = recorded(model).profile()
    assert profile.unknown_operators() == {}
    (graph,) = profile.graphs
    first, second, *rest = graph.operators
    unknown = dataclasses.replace(first, operator="aten.nonzero", bound="unknown", is_unknown=True)
    graphs = (dataclasses.replace(graph, operators=(unknown, second, *rest), num_calls=3),)
    changed = dataclasses.replace(profile, graphs=graphs)
    share = 1 / len(graph.operators)
    assert changed.unknown_operators() == {"aten.nonzero": {"num_calls": 3, "share_of_calls": pytest.approx(share)}}
    assert changed.to_dict()["unknown_operators"] and changed.graphs[0].num_unknown == 1


def test_profile_round_trips_through_json(model):
    profile = recorded(model, num_tokens=2).profile(notes=("mine",), assumptions=("also mine",))
    assert Profile.from_json(profile.to_json()) == profile
    assert profile.notes[0] == "mine" and profile.assumptions[0] == "also mine"


@pytest.mark.parametrize(
    ("path", "collapsed"),
    [("model.layers.12.mlp", "model.layers.*.mlp"), ("0.fc1", "*.fc1"), ("h.1", "h.*"), ("conv2d", "conv2d"), ("", "")],
)
def test_equal_layers_are_one_row(path, collapsed):
    assert in_every_layer(path) == collapsed


def test_interval_matches_estimate(copies):
    with record() as recorder:
        copies(input_ids=torch.ones(1, 8, dtype=torch.long))
    (graph,) = recorder.profile().graphs
    estimate = copies.estimate()
    assert graph.kind == estimate.kind == "encoder"
    assert graph.total_us * graph.low == pytest.approx(1e3 * estimate.latency_ms.low)
