"""Sparse attention with an indexer: its keys share slots with the values, and padding is never chosen."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.errors import CaptureError
from optimum_neuron.models import build_decoder
from tests.models.steps import Pair, check_steps
from tests.models.tiny_decoders import tiny_decoder, tiny_decoder_config

INDEXED = ("deepseek_v32", "glm_moe_dsa", "axk2", "hy_v4", "dots3_note_text")


def pair(model_type: str) -> Pair:
    """The decoder here and transformers' model with the same weights."""
    original = tiny_decoder(model_type)
    return Pair(build_decoder(original.config, dtype="float32", family="generic"), original)


@pytest.mark.parametrize("model_type", INDEXED)
def test_indexed_attention_gives_the_logits_of_transformers(model_type):
    models = pair(model_type)
    assert models.original.config.index_topk < 16, "more tokens than the indexer chooses"
    check_steps(models, atol=5e-5)


def test_a_slot_holds_value_and_key_of_the_indexer():
    models = pair("deepseek_v32")
    config = models.original.config
    keys, values = models.family.states[0]
    assert keys.sizes == (1, config.kv_lora_rank, None)
    assert values.sizes == (1, None, config.qk_rope_head_dim + config.index_head_dim)


def test_an_indexer_that_compresses_keys_is_refused():
    with pytest.raises(CaptureError):
        build_decoder(tiny_decoder_config("qwen4_exp_text"), dtype="float32")


def test_the_indexer_matters():
    models = pair("deepseek_v32")
    ids = torch.randint(3, 96, (1, 16))
    with torch.no_grad():
        sparse = models.original(ids).logits
        for module in models.original.modules():
            if hasattr(module, "index_topk"):
                module.index_topk = 16
        assert not torch.allclose(sparse[:, -1], models.original(ids).logits[:, -1], atol=1e-2)
