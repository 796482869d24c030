"""Valid numbers of processes, and models that can be split."""

from __future__ import annotations

import copy
import dataclasses

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from optimum_neuron.distributed import pipeline
from optimum_neuron.distributed.mesh import MeshSizes
from optimum_neuron.distributed.plans import tensor_plan
from optimum_neuron.errors import ConfigError
from tests.raising import raises


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        (dict(world_size=1), (1, 1, 1, 1)),
        (dict(world_size=4), (4, 1, 1, 1)),
        (dict(world_size=4, tensor=2), (2, 1, 1, 2)),
        (dict(world_size=8, tensor=2, pipeline=2), (2, 1, 2, 2)),
        (dict(world_size=8, context=2, pipeline=2), (2, 2, 2, 1)),
    ],
    ids=str,
)
def test_processes_are_divided(options, sizes):
    mesh = MeshSizes.of(**options)
    assert dataclasses.astuple(mesh) == sizes
    assert mesh.processes_per_batch == sizes[1] * sizes[2] * sizes[3] and mesh.replicas == sizes[0] * sizes[1]


@pytest.mark.parametrize(
    ("options", "choices"),
    [
        (dict(world_size=3, tensor=2), [2, 4]),
        (dict(world_size=1, pipeline=2), [2]),
        (dict(world_size=3, context=2), [2, 4]),
        (dict(world_size=6, tensor=2, pipeline=2), [4, 8]),
    ],
    ids=str,
)
def test_indivisible_process_counts(options, choices):
    with raises(ConfigError, value=options["world_size"], choices=choices):
        MeshSizes.of(**options)


def test_plans(llama, bert):
    assert tensor_plan(bert, size=4)["bert.encoder.layer.*.attention.self.query"] == "colwise"
    assert tensor_plan(llama, size=2)["model.layers.*.mlp.down_proj"] == "rowwise"


def test_indivisible_heads(llama, bert):
    with raises(ConfigError, value=4, choices=[2], heads={"num_attention_heads": 4, "num_key_value_heads": 2}):
        tensor_plan(llama, size=4)
    with raises(ConfigError, value=3, choices=[2, 4]):
        tensor_plan(bert, size=3)


def test_models_without_plan_or_stages(llama, bert):
    gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=8, n_positions=8))
    with raises(ConfigError, option="tensor_parallel_size", model_type="gpt2"):
        tensor_plan(gpt2, size=2)
    pipeline.require_stages(llama, 2)
    missing = [(model, 2, "no pipeline plan") for model in (bert, gpt2)]
    for model, num_stages, problem in (*missing, (llama, 3, "2 layers")):
        with raises(ConfigError, option="pipeline_parallel_size", value=num_stages) as error:
            pipeline.require_stages(model, num_stages)
        assert problem in error.value.details["problem"]


def test_stages_cover_the_whole_model(llama):
    stages = [pipeline.cut(copy.deepcopy(llama), index=index, num_stages=2) for index in range(2)]
    first, last = (set(stage.model.state_dict()) for stage in stages)
    assert first | last == set(llama.state_dict()) and not first & last
    assert "model.embed_tokens.weight" in first and "lm_head.weight" in last


@pytest.mark.parametrize(("requested", "rows", "parts"), [(-1, 8, 2), (-1, 9, 3), (4, 8, 4), (8, 8, 8)])
def test_microbatches(requested, rows, parts):
    assert pipeline.num_microbatches(requested, batch_size=rows, num_stages=2) == parts


@pytest.mark.parametrize(
    ("requested", "rows", "choices"), [(3, 8, [2, 4, 8]), (1, 8, [2, 4, 8]), (2, 7, [7]), (-1, 1, [])]
)
def test_indivisible_batches(requested, rows, choices):
    with raises(ConfigError, value=requested, choices=choices):
        pipeline.num_microbatches(requested, batch_size=rows, num_stages=2)
