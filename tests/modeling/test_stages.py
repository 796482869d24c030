"""Decoders in pipeline stages: tokens of transformers, memory and time of every stage, and refusals."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification, check_model
from optimum_neuron.errors import ArtifactError, ConfigError, ModelError
from optimum_neuron.exporters import inspect_export
from optimum_neuron.hardware import resolve_instance
from optimum_neuron.profiling import record
from optimum_neuron.runtime import ledger
from optimum_neuron.simulator import core_usage, estimate
from tests.encoders import save_tiny_encoder
from tests.raising import raises
from tests.tiny import SMALL, save_tiny

INSTANCE = "trn2.48xlarge"
PROMPT = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 3, 4, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
GPT = {"n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 64, "multi_query": True}
JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4}
GREEDY = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}


def compiled(folder, **options):
    return NeuronModelForCausalLM.from_pretrained(folder, export=True, instance_type=INSTANCE, **SMALL | options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("llama"), "llama", tie_word_embeddings=True)


@pytest.fixture(scope="module")
def model(folder):
    """Two stages of two cores each."""
    with compiled(folder, tensor_parallel_size=2, pipeline_parallel_size=2) as model:
        yield model


def same_tokens(model, folder):
    original = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    expected = original.generate(PROMPT, attention_mask=MASK, **GREEDY).tolist()
    return model.generate(PROMPT, attention_mask=MASK, **GREEDY).tolist() == expected


def test_tokens_are_those_of_transformers(model, folder):
    assert same_tokens(model, folder)
    assert len(model.loaded.claim.core_ids) == 4


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("model_type", "overrides"), [("gpt_bigcode", GPT), ("jamba", JAMBA)])
def test_tokens_of_the_generic_path_are_those_of_transformers(tmp_path, model_type, overrides):
    folder = save_tiny(tmp_path, model_type, **overrides)
    with compiled(folder, family="generic", pipeline_parallel_size=2) as model:
        assert same_tokens(model, folder)
        assert model.describe()["num_cores"]["value"] == 2


def test_every_stage_has_its_layers_in_its_own_memory(model, folder):
    stages = model.describe()["stages"]
    assert [(one["first"], one["last"]) for one in stages] == [
        ("model.layers.0", "model.layers.1"),
        ("model.layers.2", "model.head"),
    ]
    assert model.describe()["hbm_bytes"]["total"] == max(one["hbm_bytes"] for one in stages)
    instance, needs = resolve_instance(INSTANCE).value, model.loaded.needs
    owned = [ledger(instance, core).used_by_owner()[str(folder)] for core in model.loaded.claim.core_ids]
    assert [one["kv_cache"] for one in owned] == [need.kv_cache for need in needs for _ in range(2)]
    assert needs[0].kv_cache == 2 * needs[1].kv_cache


def test_cores_are_busy_while_their_stage_runs(model):
    before = {core.core_id: core.busy_us for core in core_usage() if core.instance == INSTANCE}
    with record("stages") as recorder:
        model.generate(PROMPT[:1], max_new_tokens=3, do_sample=False)
    profile = recorder.profile()
    after = {core.core_id: core.busy_us for core in core_usage() if core.instance == INSTANCE}
    for core in profile.cores:
        assert core.busy_us == pytest.approx(after[core.core_id] - before.get(core.core_id, 0.0))
    ends = [call.ended_us for call in profile.calls]
    assert all(call.started_us >= end for call, end in zip(profile.calls[1:], ends, strict=False))
    # An estimate has the sum of the stages, each with a launch of its own, and the host's time.
    decode_us = sum(graph.device_us for graph in profile.graphs if graph.graph == "decode_48")
    parts = model.estimate().parts_ms["decode_48"]
    launch_us = sum(graph.launch_us for graph in profile.graphs if graph.graph == "decode_48")
    assert 1e3 * parts["launch"] == pytest.approx(launch_us) and decode_us < 1e3 * model.estimate().tpot_ms.value


def test_an_exported_folder_keeps_its_stages(model, tmp_path):
    model.save_pretrained(tmp_path)
    with NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=INSTANCE) as again:
        assert torch.equal(again.generate(PROMPT, max_new_tokens=4), model.generate(PROMPT, max_new_tokens=4))
    assert inspect_export(tmp_path)["stages"] == model.describe()["stages"]
    with raises(ConfigError, folder=str(tmp_path)):
        NeuronModelForCausalLM.from_pretrained(tmp_path, pipeline_parallel_size=3)
    file = tmp_path / "neuron_config.json"
    file.write_text(file.read_text().replace('"pipeline_parallel_size": 2', '"pipeline_parallel_size": 1'))
    with pytest.raises(ArtifactError) as caught:
        NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=INSTANCE)
    assert len(caught.value.details["problems"]) == 1


def test_stages_on_two_instances(model, tmp_path):
    model.save_pretrained(tmp_path)
    one = model.estimate()
    with NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=f"2x{INSTANCE}") as again:
        assert torch.equal(again.generate(PROMPT, max_new_tokens=4), model.generate(PROMPT, max_new_tokens=4))
        # The same cores of each instance, which has 64.
        assert again.loaded.claim.core_ids == (0, 1, 64, 65)
        assert [stage["instance"] for stage in again.describe()["stages"]] == [0, 1]
        with record("instances") as recorder:
            again(PROMPT)
        _, second = recorder.profile().graphs
        two = again.estimate(price=3.0)
        link_ms = two.parts_ms["prefill_16"]["link"] - one.parts_ms["prefill_16"]["link"]
    # Only the second stage gets its inputs over the network.
    assert 0 < link_ms < 1e-3 * second.parts_us["link"]
    assert two.num_instances == 2 and two.usd_per_h == 6.0 and two.num_copies.value == 32
    with raises(ConfigError, option="pipeline_parallel_size", num_instances=3):
        NeuronModelForCausalLM.from_pretrained(tmp_path, instance_type=f"3x{INSTANCE}")
    with raises(ConfigError, option="instance"):
        estimate(model.config, instance=f"2x{INSTANCE}")


def test_a_check_counts_the_memory_of_the_fullest_stage(model, folder):
    shapes = {name: value for name, value in SMALL.items() if name != "optlevel"}
    sizes = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    report = check_model(folder, instance_type=INSTANCE, **sizes, **shapes)
    assert report.to_dict()["num_cores"] == model.describe()["num_cores"]
    assert report.memory.need == model.prepared.need


def test_wrong_numbers_of_stages_are_refused(folder, tmp_path, monkeypatch):
    with raises(ConfigError, option="pipeline_parallel_size", num_layers=3):
        compiled(folder, pipeline_parallel_size=4)
    with raises(ConfigError, num_cores=6):
        compiled(folder, tensor_parallel_size=2, pipeline_parallel_size=3)
    with raises(ConfigError, num_cores=128):
        compiled(folder, tensor_parallel_size=64, pipeline_parallel_size=2)
    with raises(ConfigError):
        compiled(folder, pipeline_parallel_size=0)
    monkeypatch.setattr("optimum_neuron.kinds.decoder.plan.find_stacks", lambda *_, **__: ())
    with raises(ModelError, option="pipeline_parallel_size", num_layers=1):
        compiled(folder, pipeline_parallel_size=2)
    bert = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    with raises(ConfigError, option="pipeline_parallel_size", value=2):
        NeuronModelForSequenceClassification.from_pretrained(bert, export=True, pipeline_parallel_size=2)
    with raises(ConfigError, option="pipeline_parallel_size"):
        estimate(folder, pipeline_parallel_size=2)
