"""Models, adapters and settings that a layout cannot have, refused by name before anything is taken apart."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.distributed.context import require_context, require_divisible
from optimum_neuron.distributed.mesh import MeshSizes
from optimum_neuron.distributed.pipeline import padded
from optimum_neuron.distributed.plans import SEQUENCE_PLANS, expand, tensor_plan
from optimum_neuron.distributed.training import require_whole_model
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.trainer.layout import fsdp_problems

peft = pytest.importorskip("peft")


def adapted(model, **options):
    return peft.get_peft_model(copy.deepcopy(model), options.pop("config", peft.LoraConfig)(**options))


def expanded(model):
    core = model.get_base_model()
    return expand(core, tensor_plan(core, size=2).value)


def test_an_adapter_is_split_as_its_layer(llama):
    found = expanded(adapted(llama, target_modules=["q_proj", "down_proj"], layers_to_transform=[1]))
    assert found["model.layers.0.self_attn.q_proj"] == found["model.layers.1.self_attn.q_proj.base_layer"] == "colwise"
    assert found["model.layers.1.self_attn.q_proj.lora_B.default"] == "colwise"
    assert "model.layers.1.self_attn.q_proj.lora_A.default" not in found
    assert found["model.layers.1.mlp.down_proj.lora_A.default.weight"] == "rowwise"
    assert "model.layers.1.self_attn.q_proj" not in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(target_modules=["q_proj"], use_dora=True), "use_dora=True, whose norms are of whole weights"),
        (
            dict(config=peft.IA3Config, target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
            "first of model.layers.0.self_attn.k_proj: peft.tuners.ia3.layer.Linear",
        ),
    ],
    ids=["dora", "ia3"],
)
def test_adapters_that_cannot_be_split(llama, options, message):
    with pytest.raises(ConfigError, match=message):
        expanded(adapted(llama, **options))


def test_sequence_parallel_without_a_plan():
    from transformers import Phi3Config, Phi3ForCausalLM

    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8)
    model = Phi3ForCausalLM(Phi3Config(**sizes, pad_token_id=0))
    assert "phi3" not in SEQUENCE_PLANS and tensor_plan(model, size=2).value
    with pytest.raises(ConfigError, match="no plan for the architecture 'phi3'.*leave sequence_parallel out"):
        tensor_plan(model, size=2, splits_tokens=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda llama: "smollm2", "a str. .*pass it, in place of its name"),
        (lambda llama: None, "a NoneType"),
        (
            lambda llama: adapted(llama, config=peft.PromptTuningConfig, task_type="CAUSAL_LM", num_virtual_tokens=2),
            "an adapter PROMPT_TUNING, which is no part of the model.*pass LoraConfig",
        ),
    ],
    ids=["name", "nothing", "prompt tuning"],
)
def test_what_cannot_be_taken_apart(llama, make, message):
    with pytest.raises(ConfigError, match=f"tensor_parallel_size=2 of .*{message}"):
        require_whole_model(make(llama), "tensor_parallel_size=2")


def test_parameters_of_two_dtypes(llama):
    from optimum_neuron.distributed.shard import Sharding, mixed_precision

    model = copy.deepcopy(llama).bfloat16()
    model.lm_head.float()
    with pytest.raises(ConfigError, match=r"torch.bfloat16 and torch.float32.*load the model in one dtype"):
        mixed_precision(model, Sharding(sizes=MeshSizes(data=2)))


@pytest.mark.parametrize("masters", [True, False])
def test_how_16_bits_are_held_and_summed(llama, masters):
    from optimum_neuron.distributed.shard import Sharding, mixed_precision

    model = copy.deepcopy(llama).bfloat16()
    policy = mixed_precision(model, Sharding(sizes=MeshSizes(data=2), master_weights=masters))
    assert model.dtype == (torch.float32 if masters else torch.bfloat16)
    assert policy.param_dtype == (torch.bfloat16 if masters else None) and policy.reduce_dtype == torch.float32
    assert mixed_precision(copy.deepcopy(llama), Sharding(sizes=MeshSizes(data=2))) is None


def test_settings_of_fsdp_that_are_not_read():
    assert fsdp_problems({"reshard_after_forward": False, "version": 2, "xla": False}) == []
    (told,) = fsdp_problems({"cpu_offload": True, "state_dict_type": "SHARDED_STATE_DICT"})
    assert "cpu_offload=True, state_dict_type=SHARDED_STATE_DICT" in told and "reshard_after_forward is read" in told


def test_a_batch_is_padded_with_rows_that_have_no_labels():
    batch = {"input_ids": torch.arange(6).view(3, 2), "labels": torch.arange(6).view(3, 2), "scale": 2.0}
    longer = padded(batch, multiple=2)
    assert longer["input_ids"].tolist() == [[0, 1], [2, 3], [4, 5], [4, 5]]
    assert longer["labels"].tolist()[3] == [-100, -100] and longer["scale"] == 2.0
    assert padded(batch, multiple=3)["input_ids"] is batch["input_ids"]


def test_families_whose_sequences_can_be_shared(llama, bert):
    from transformers import LlamaForSequenceClassification, MambaConfig, MambaForCausalLM

    require_context(llama, 2)
    mamba = MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=8, state_size=4))
    for model in (bert, mamba, LlamaForSequenceClassification(llama.config)):
        with pytest.raises(ConfigError, match=f"of {type(model).__name__}: .*a causal language model of gemma, "):
            require_context(model, 2)


def test_attention_and_losses_that_are_not_of_parts(llama):
    model = copy.deepcopy(llama)
    model.set_attn_implementation("eager")
    model.config.output_router_logits = True
    with pytest.raises(ConfigError) as caught:
        require_context(model, 2)
    eager, router = str(caught.value).splitlines()
    assert "load the model with attn_implementation='sdpa'" in eager and "output_router_logits=False" in router


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"inputs_embeds": torch.zeros(1, 4, 8)}, ".*no input_ids"),
        ({"input_ids": torch.zeros(1, 7)}, "7 tokens in each row: 7 is not a multiple of 2.*pad_to_multiple_of=2"),
        ({"input_ids": torch.zeros(1, 4), "attention_mask": torch.ones(1, 1, 4, 4)}, ".*attention_mask with 4 axes"),
        (
            {"input_ids": torch.zeros(1, 4), "position_ids": torch.tensor([[0, 1, 0, 1]])},
            ".*begin again within a row.*packing=False",
        ),
    ],
    ids=["embeddings", "length", "mask", "packed"],
)
def test_batches_whose_sequences_cannot_be_shared(batch, message):
    with pytest.raises(ModelError, match=f"context_parallel_size=2 with a batch of {message}"):
        require_divisible(batch, 2)


def test_a_loss_that_is_no_sum_over_tokens():
    from optimum_neuron import NeuronTrainer

    class Own(NeuronTrainer):
        def compute_loss(self, *positional, **keywords):
            return super().compute_loss(*positional, **keywords)

    assert Own._other_losses(Own.__new__(Own)) == [Own]
    assert not NeuronTrainer._other_losses(NeuronTrainer.__new__(NeuronTrainer))
