"""Room for adapters in decoders: which layers get it, and which take none."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.models import build_decoder, with_adapters
from tests.models.mixtures import DEEPSEEK
from tests.raising import raises
from tests.tiny import tiny_config


def decoder(targets=None, model_type="qwen3_next", family=None, **overrides):
    family = build_decoder(tiny_config(model_type, **overrides), dtype="float32", num_tokens=16, family=family)
    return with_adapters(family, max_loras=2, max_rank=4, targets=targets)


def run(family):
    """Run the decoder on the meta device, two rows of three tokens."""
    index = torch.zeros(2, dtype=torch.int64)
    ids, positions = (torch.zeros(2, 3, dtype=torch.int64, device="meta") for _ in range(2))
    states = [torch.zeros(tensor.shape(2, 16), device="meta") for state in family.states for tensor in state]
    with torch.no_grad(), torch.device("meta"), family.adapters.chosen(family.module, index.to("meta"), 3):
        family.module.to("meta")(ids, positions, states, num_slots=None, num_new_B=torch.full((2,), 3))


def test_parts_of_fused_layers_have_their_own_ranks():
    layers = decoder(["q_proj", "layers.1.mlp.up_proj"], "llama").adapters.plan.layers
    assert layers["layers.0.attention.qkv"] == ("model.layers.0.self_attn.q_proj",)
    assert layers["layers.1.mlp.gate_up"] == ("model.layers.1.mlp.up_proj",) and len(layers) == 4
    module = decoder(None, "llama").module.layers[0].attention.qkv
    assert module.lora_A.shape == (3, 12, 32) and module.lora_B.shape == (3, 64, 12)


def test_layer_that_is_not_called():
    run(decoder())
    with raises(ModelError, modules=["layers.*.mlp.shared_gate"]):
        run(decoder(["q_proj", "shared_expert_gate"]))


def test_weight_that_only_decode_steps_read():
    """Prompts call the layer, so that its results would have adapters in some graphs only."""
    layers = decoder(None, "deepseek_v3", **DEEPSEEK).adapters.plan.layers
    assert {path.rpartition(".")[2] for path in layers if "attention" in path} == {"q_down", "q_up", "kv_down", "out"}


@pytest.mark.parametrize("family", [None, "generic"])
def test_names_without_a_linear_layer(family):
    with raises(ConfigError, option="lora_target_modules", value=["embed_tokens", "lm_head"]):
        decoder(["q_proj", "embed_tokens", "lm_head"], "llama", family=family)
