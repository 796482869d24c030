"""Latent attention against transformers' DeepSeek-V3 in float32: prompts, later tokens, and rows of other lengths."""

from __future__ import annotations

import pytest
import torch
from transformers import DeepseekV3Config
from transformers.cache_utils import DynamicCache
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention, DeepseekV3RotaryEmbedding

from optimum_neuron.models.common import (
    AttentionView,
    LatentAttention,
    LatentConfig,
    Norm,
    read_rotary,
    rotary_angles,
    visible_slots,
)
from optimum_neuron.upstream.cache_argument import CACHE

HIDDEN, HEADS, SLOTS = 32, 4, 24
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
}
CASES = {
    "interleaved": {},
    "halves": {"rope_interleave": False},
    "query in one step": {"q_lora_rank": None},
    "bias": {"attention_bias": True},
    "yarn": {"rope_parameters": YARN, "max_position_embeddings": 64},
}
NAMES = {
    "q_proj": "q",
    "q_a_proj": "q_down",
    "q_a_layernorm": "q_norm",
    "q_b_proj": "q_up",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm",
    "kv_b_proj": "kv_up",
    "o_proj": "out",
}


@pytest.fixture(params=CASES)
def pair(request):
    sizes = {"q_lora_rank": 12, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 10}
    config = DeepseekV3Config(
        hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=HEADS, **sizes | CASES[request.param]
    )
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    original = DeepseekV3Attention(config, 0).eval()
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.normal_(0, 0.4)
    latent = LatentConfig(
        query_rank=config.q_lora_rank,
        rank=8,
        plain_dim=6,
        rotary_dim=4,
        value_dim=10,
        scale=original.scaling,
        norm=Norm(eps=1e-6),
        bias=config.attention_bias,
    )
    attention = LatentAttention(HIDDEN, HEADS, latent).eval()
    state = original.state_dict()
    parts = {name: name.partition(".") for name in state}
    attention.load_state_dict({f"{NAMES[first]}.{last}": state[name] for name, (first, _, last) in parts.items()})
    rotary = read_rotary(config, is_interleaved=config.rope_interleave)
    return original, attention, DeepseekV3RotaryEmbedding(config), rotary


def seen_from(rotary, positions_BT, num_slots):
    mask = None if num_slots is None else visible_slots(positions_BT, num_slots, None)
    angles = rotary_angles(positions_BT, torch.tensor(rotary.inv_freq), rotary)
    return AttentionView(positions_BT=positions_BT, angles=angles, mask=mask, num_slots=num_slots)


@pytest.mark.parametrize("num_more", [1, 3], ids=["decode", "extend"])
def test_rows_of_any_length_are_those_of_transformers(pair, num_more):
    original, attention, embed, rotary = pair
    states = torch.full((2, 1, 8, SLOTS), 7.0), torch.full((2, 1, SLOTS, 4), 7.0)
    lengths = (9, 5)
    x_BTD = torch.randn(2, 9 + num_more, HIDDEN)
    with torch.no_grad():
        prompt = attention(x_BTD[:, :9], seen_from(rotary, torch.arange(9).expand(2, -1), None), *states)
        positions_BT = torch.tensor(lengths)[:, None] + torch.arange(num_more)
        later = attention(x_BTD[:, 9:], seen_from(rotary, positions_BT, SLOTS - 2), *states)
        for row, length in enumerate(lengths):
            x_1TD = torch.cat((x_BTD[row : row + 1, :length], x_BTD[row : row + 1, 9:]), 1)
            positions = torch.arange(length + num_more)[None]
            mask = torch.where(visible_slots(positions, length + num_more, None), 0.0, float("-inf"))
            expected, _ = original(x_1TD, embed(x_1TD, positions), mask, **{CACHE: DynamicCache()})
            torch.testing.assert_close(prompt[row, :length], expected[0, :length], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(later[row], expected[0, length:], rtol=1e-4, atol=1e-5)
