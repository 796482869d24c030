"""Plans of other architectures: transformers' own code divided between two cores has the logits of one."""

from __future__ import annotations

import pytest

from tests.models.cores import SharedPair
from tests.models.steps import check_steps, pair

ODD = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 8, "intermediate_size": 100}
"""Nine heads share three key heads; two cores divide neither."""
WIDE = ODD | {"num_key_value_heads": 9}
NAMED_OTHERWISE = {"n_embd": 72, "n_head": 9, "n_layer": 3, "n_positions": 64}
FALCON = {name: size for name, size in WIDE.items() if name != "head_dim"}
FALCON |= {"num_kv_heads": 9, "new_decoder_architecture": False, "multi_query": False, "bias": True}

PLANNED = {
    "gpt2": ("gpt2", WIDE | NAMED_OTHERWISE),
    "opt": ("opt", WIDE | {"word_embed_proj_dim": 72}),
    "bloom": ("bloom", WIDE | {"n_head": 9, "n_layer": 3}),
    "falcon": ("falcon", FALCON),
    "falcon with one key head": ("falcon", FALCON | {"multi_query": True}),
    "falcon with grouped heads": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 3}),
    "falcon with ALiBi": ("falcon", FALCON | {"alibi": True}),
    "gpt_neox": ("gpt_neox", WIDE),
    "gptj": ("gptj", WIDE | NAMED_OTHERWISE | {"rotary_dim": 4}),
    "phi": ("phi", WIDE),
    "stablelm": ("stablelm", ODD | {"use_qkv_bias": True}),
    "starcoder2": ("starcoder2", ODD),
    "mpt": ("mpt", WIDE | {"d_model": 72, "n_heads": 9, "n_layers": 3, "max_seq_len": 64, "expansion_ratio": 2}),
}


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("model_type", "overrides"), PLANNED.values(), ids=PLANNED)
def test_two_cores_give_the_logits_of_one(model_type, overrides):
    shared = SharedPair.of(pair(model_type, family="generic", **overrides), 2)
    first = shared.families[0]
    layer = [name for name, weight in first.module.named_parameters() if ".0." in name and weight.ndim > 1]
    assert layer and set(layer) <= first.shards.of_weights.keys(), "every matrix of a layer is divided"
    check_steps(shared)
