"""Models, adapters, and settings that a layout does not support: errors by name before anything is distributed."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.distributed import mixed_precision, require_whole_model
from optimum_neuron.distributed.context import require_context, require_divisible
from optimum_neuron.distributed.layout import require_fsdp_config
from optimum_neuron.distributed.mesh import MeshSizes
from optimum_neuron.distributed.pipeline import padded
from optimum_neuron.distributed.plans import SEQUENCE_PLANS, expand, tensor_plan
from optimum_neuron.distributed.shard import Sharding
from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises

peft = pytest.importorskip("peft")


def adapted(model, **options):
    return peft.get_peft_model(copy.deepcopy(model), options.pop("config", peft.LoraConfig)(**options))


def expanded(model):
    core = model.get_base_model()
    return expand(core, tensor_plan(core, size=2))


def test_adapter_is_split_like_its_layer(llama):
    plan = expanded(adapted(llama, target_modules=["q_proj", "down_proj"], layers_to_transform=[1]))
    assert plan["model.layers.0.self_attn.q_proj"] == plan["model.layers.1.self_attn.q_proj.base_layer"] == "colwise"
    assert plan["model.layers.1.self_attn.q_proj.lora_B.default"] == "colwise"
    assert "model.layers.1.self_attn.q_proj.lora_A.default" not in plan
    assert plan["model.layers.1.mlp.down_proj.lora_A.default.weight"] == "rowwise"
    assert "model.layers.1.self_attn.q_proj" not in plan


@pytest.mark.parametrize(
    ("options", "module", "problem"),
    [
        (dict(target_modules=["q_proj"], use_dora=True), "q_proj", "use_dora=True"),
        (
            dict(config=peft.IA3Config, target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
            "k_proj",
            "peft.tuners.ia3.layer.Linear",
        ),
    ],
    ids=["dora", "ia3"],
)
def test_indivisible_adapters(llama, options, module, problem):
    with raises(ConfigError, option="peft_config", module=f"model.layers.0.self_attn.{module}") as error:
        expanded(adapted(llama, **options))
    assert problem in error.value.details["problem"]


def test_sequence_parallel_without_plan():
    from transformers import Phi3Config, Phi3ForCausalLM

    sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=8)
    model = Phi3ForCausalLM(Phi3Config(**sizes, pad_token_id=0))
    assert "phi3" not in SEQUENCE_PLANS and tensor_plan(model, size=2)
    with raises(ConfigError, option="sequence_parallel", model_type="phi3"):
        tensor_plan(model, size=2, splits_tokens=True)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda llama: "smollm2", "str"),
        (lambda llama: None, "NoneType"),
        (
            lambda llama: adapted(llama, config=peft.PromptTuningConfig, task_type="CAUSAL_LM", num_virtual_tokens=2),
            "PROMPT_TUNING",
        ),
    ],
    ids=["name", "nothing", "prompt tuning"],
)
def test_unsupported_models(llama, make, word):
    with raises(ConfigError, option="model", layout="tensor_parallel_size=2") as error:
        require_whole_model(make(llama), "tensor_parallel_size=2")
    assert word in error.value.message


def test_parameters_of_two_dtypes(llama):
    model = copy.deepcopy(llama).bfloat16()
    model.lm_head.float()
    with raises(ConfigError, dtypes=["torch.bfloat16", "torch.float32"]):
        mixed_precision(model, Sharding(sizes=MeshSizes(data=2)))


@pytest.mark.parametrize("masters", [True, False])
def test_16_bit_weights_and_gradient_sums(llama, masters):
    model = copy.deepcopy(llama).bfloat16()
    policy = mixed_precision(model, Sharding(sizes=MeshSizes(data=2), master_weights=masters))
    assert model.dtype == (torch.float32 if masters else torch.bfloat16)
    assert policy.param_dtype == (torch.bfloat16 if masters else None) and policy.reduce_dtype == torch.float32
    assert mixed_precision(copy.deepcopy(llama), Sharding(sizes=MeshSizes(data=2))) is None


def test_ignored_fsdp_settings():
    require_fsdp_config({"reshard_after_forward": False, "version": 2, "xla": False})
    settings = {"cpu_offload": True, "state_dict_type": "SHARDED_STATE_DICT"}
    with raises(ConfigError, settings=settings):
        require_fsdp_config(settings)


def test_batch_is_padded_with_unlabelled_rows():
    batch = {"input_ids": torch.arange(6).view(3, 2), "labels": torch.arange(6).view(3, 2), "scale": 2.0}
    longer = padded(batch, multiple=2)
    assert longer["input_ids"].tolist() == [[0, 1], [2, 3], [4, 5], [4, 5]]
    assert longer["labels"].tolist()[3] == [-100, -100] and longer["scale"] == 2.0
    assert padded(batch, multiple=3)["input_ids"] is batch["input_ids"]


def test_families_with_sequence_parallelism(llama, bert):
    from transformers import LlamaForSequenceClassification, MambaConfig, MambaForCausalLM

    require_context(llama, 2)
    mamba = MambaForCausalLM(MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=8, state_size=4))
    for model in (bert, mamba, LlamaForSequenceClassification(llama.config)):
        with raises(ConfigError, option="context_parallel_size", value=2):
            require_context(model, 2)


def test_attention_and_losses_without_sequence_parallelism(llama):
    model = copy.deepcopy(llama)
    model.set_attn_implementation("eager")
    model.config.output_router_logits = True
    for details in (
        dict(option="attn_implementation", value="eager", choices=["sdpa"]),
        dict(option="output_router_logits", value=True, choices=[False]),
    ):
        with raises(ConfigError, **details):
            require_context(model, 2)


@pytest.mark.parametrize(
    ("batch", "hint"),
    [
        ({"inputs_embeds": torch.zeros(1, 4, 8)}, "input_ids"),
        ({"input_ids": torch.zeros(1, 7)}, "pad_to_multiple_of=2"),
        ({"input_ids": torch.zeros(1, 4), "attention_mask": torch.ones(1, 1, 4, 4)}, "attention_mask"),
        ({"input_ids": torch.zeros(1, 4), "position_ids": torch.tensor([[0, 1, 0, 1]])}, "packing=False"),
    ],
    ids=["embeddings", "length", "mask", "packed"],
)
def test_batches_without_sequence_parallelism(batch, hint):
    with raises(ModelError, option="context_parallel_size", value=2) as error:
        require_divisible(batch, 2)
    assert hint in error.value.hint


def test_loss_that_is_not_a_token_sum():
    from optimum_neuron import NeuronTrainer

    class Own(NeuronTrainer):
        def compute_loss(self, *positional, **keywords):
            return super().compute_loss(*positional, **keywords)

    assert Own._other_losses(Own.__new__(Own)) == [Own]
    assert not NeuronTrainer._other_losses(NeuronTrainer.__new__(NeuronTrainer))
