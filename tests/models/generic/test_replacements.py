"""Layers that transformers writes for dynamic shapes, complex numbers, or a count of tokens, as a static graph."""

from __future__ import annotations

import pytest
import torch
from transformers.models.deepseek_v2 import modeling_deepseek_v2

from optimum_neuron.errors import CaptureError
from optimum_neuron.models import build_decoder
from optimum_neuron.models.generic import build
from tests.models.steps import Pair, check_steps
from tests.models.tiny_decoders import tiny_decoder, tiny_decoder_config

REPLACED = ("dbrx", "longcat_flash", "jetmoe", "xmod", "deepseek_v2", "llama4_text", "roformer", "openai-gpt")


def pair(model_type: str, **changes) -> Pair:
    """The decoder here and transformers' model with the same weights."""
    config = tiny_decoder_config(model_type)
    for name, value in changes.items():
        setattr(config, name, value)
    original = tiny_decoder(model_type, config=config)
    return Pair(build_decoder(original.config, dtype="float32", family="generic"), original)


@pytest.mark.parametrize("model_type", REPLACED)
def test_replaced_layers_give_the_logits_of_transformers(model_type):
    check_steps(pair(model_type), atol=5e-5)


def test_llama4_scales_queries_by_their_position():
    changes: dict = {"floor_scale": 2, "attn_scale": 0.5, "attn_temperature_tuning": True}
    models = pair("llama4_text", **changes)
    assert not all(models.original.config.no_rope_layers), "a layer without rotary positions is what is scaled"
    check_steps(models, atol=5e-5)
    layers = [module for module in models.family.module.modules() if hasattr(module, "attn_temperature_tuning")]
    assert layers and all(layer.attn_temperature_tuning for layer in layers), "the switch is as it was"


def test_xmod_with_two_languages_uses_the_default_one():
    models = pair("xmod", languages=["en_XX", "de_DE"], default_language="de_DE")
    check_steps(models)


def test_xmod_without_a_default_language_is_refused():
    config = tiny_decoder_config("xmod")
    config.default_language = None
    with pytest.raises(CaptureError) as refused:
        build(config)
    assert refused.value.details["model_type"] == "xmod"


def test_the_functions_of_transformers_are_back_afterwards():
    before = modeling_deepseek_v2.apply_rotary_emb
    models = pair("deepseek_v2")
    models.run(torch.tensor([[3]] * 2), torch.tensor([[0]] * 2), models.new_states(), num_slots=None)
    assert modeling_deepseek_v2.apply_rotary_emb is before


def test_mllama_without_images_skips_the_layers_for_them():
    config = tiny_decoder_config("mllama")
    original = tiny_decoder("mllama")
    assert config.text_config.cross_attention_layers == [1]
    check_steps(Pair(build_decoder(config, dtype="float32", family="generic"), original))


def test_few_and_many_tokens_take_the_same_experts():
    models = pair("dbrx")
    ids, positions = torch.randint(3, 96, (2, 10)), torch.arange(10).expand(2, -1)
    prompt = models.run(ids, positions, models.new_states(), num_slots=None)
    states = models.new_states()
    for column in range(10):
        step = models.run(ids[:, column : column + 1], positions[:, column : column + 1], states, num_slots=16)
        torch.testing.assert_close(step[:, 0], prompt[:, column], atol=5e-5, rtol=1e-4)
