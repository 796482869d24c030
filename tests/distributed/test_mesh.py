"""Which numbers of processes can be, and which models can be split."""

from __future__ import annotations

import dataclasses

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from optimum_neuron.distributed import pipeline
from optimum_neuron.distributed.mesh import MeshSizes
from optimum_neuron.distributed.plans import tensor_plan
from optimum_neuron.errors import ConfigError


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
    found = MeshSizes.of(**options)
    assert dataclasses.astuple(found) == sizes
    assert found.processes_per_batch == sizes[1] * sizes[2] * sizes[3] and found.copies == sizes[0] * sizes[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(world_size=3, tensor=2), "tensor_parallel_size=2 with 3 processes: 3 is not a multiple.*start 2 or 4"),
        (dict(world_size=1, pipeline=2), "pipeline_parallel_size=2 with 1 process: .*start 2 processes"),
        (dict(world_size=3, context=2), "context_parallel_size=2 with 3 .*One batch takes 2 processes.*start 2 or 4"),
        (dict(world_size=6, tensor=2, pipeline=2), "tensor_parallel_size=2 and pipeline_parallel_size=2 with 6"),
    ],
    ids=str,
)
def test_processes_that_cannot_be_divided(options, message):
    with pytest.raises(ConfigError, match=message):
        MeshSizes.of(**options)


def test_plans(llama, bert):
    assert tensor_plan(bert, size=2).reason == "plan of the family bert"
    assert tensor_plan(bert, size=4).value["bert.encoder.layer.*.attention.self.query"] == "colwise"
    theirs = tensor_plan(llama, size=2)
    assert theirs.reason == "transformers' tp_plan of LlamaForCausalLM"
    assert theirs.value["model.layers.*.mlp.down_proj"] == "rowwise"


def test_heads_that_cannot_be_split(llama, bert):
    with pytest.raises(ConfigError, match=r"num_key_value_heads=2.*pass tensor_parallel_size=2\.$"):
        tensor_plan(llama, size=4)
    with pytest.raises(ConfigError, match=r"num_attention_heads=4.*pass tensor_parallel_size=2 or 4\.$"):
        tensor_plan(bert, size=3)


def test_models_without_a_plan():
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=8, n_positions=8))
    with pytest.raises(ConfigError, match="no plan for the architecture 'gpt2'.*zero_1=True"):
        tensor_plan(model, size=2)
    with pytest.raises(ConfigError, match="no pipeline plan for the architecture 'gpt2'"):
        pipeline.require_stages(model, 2)


def test_models_that_cannot_be_cut(llama, bert):
    pipeline.require_stages(llama, 2)
    with pytest.raises(ConfigError, match="2 layers.*pass pipeline_parallel_size=2 or less"):
        pipeline.require_stages(llama, 3)
    with pytest.raises(ConfigError, match="no pipeline plan for the architecture 'bert'"):
        pipeline.require_stages(bert, 2)


def test_tied_embeddings_that_are_trained_cannot_be_cut(llama):
    import copy

    config = copy.deepcopy(llama.config)
    config.tie_word_embeddings = True
    tied = type(llama)(config)
    with pytest.raises(ConfigError, match="and the weight is trained.*pass a peft_config that leaves both alone"):
        pipeline.require_stages(tied, 2)
    pipeline.require_stages(tied.requires_grad_(False), 2)


def test_stages_have_the_whole_model_between_them(llama):
    import copy

    stages = [pipeline.cut(copy.deepcopy(llama), index=index, num_stages=2) for index in range(2)]
    first, last = (set(stage.model.state_dict()) for stage in stages)
    assert first | last == set(llama.state_dict()) and not first & last
    assert "model.embed_tokens.weight" in first and "lm_head.weight" in last


@pytest.mark.parametrize(("asked", "rows", "parts"), [(-1, 8, 2), (-1, 9, 3), (4, 8, 4), (8, 8, 8)])
def test_parts_of_a_batch(asked, rows, parts):
    assert pipeline.num_microbatches(asked, batch_size=rows, num_stages=2).value == parts


@pytest.mark.parametrize(
    ("asked", "rows", "message"),
    [
        (3, 8, "not a multiple of it.*pass 2 or 4 or 8"),
        (1, 8, "fewer parts than stages.*pass 2 or 4 or 8"),
        (2, 7, "not a multiple of it.*pass 7"),
        (-1, 1, "per_device_train_batch_size=2 or a multiple of it, and dataloader_drop_last=True"),
    ],
)
def test_batches_that_are_not_a_multiple(asked, rows, message):
    with pytest.raises(ConfigError, match=message):
        pipeline.num_microbatches(asked, batch_size=rows, num_stages=2)
