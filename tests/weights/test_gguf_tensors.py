"""Names and orders of tensors in GGUF files, as llama.cpp's convert_hf_to_gguf.py writes them."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron.weights import GgufName
from optimum_neuron.weights.gguf_tensors import gguf_names
from tests.tiny import tiny_config

pytest.importorskip("gguf")


def names_of(model_type, architecture, change=lambda model: None):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(model_type))
        change(model.model)
    return gguf_names(model, architecture)


LAYER = {
    "input_layernorm": "attn_norm",
    **{f"self_attn.{name}_proj": f"attn_{name}" for name in "qkv"},
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    **{f"mlp.{name}_proj": f"ffn_{name}" for name in ("gate", "up", "down")},
}
OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@pytest.mark.parametrize(("model_type", "heads"), [("llama", {"attn_q": 4, "attn_k": 2}), ("qwen2", {})])
def test_every_tensor_has_its_name_and_queries_of_llama_another_order(model_type, heads):
    names = names_of(model_type, model_type)
    ends = ("weight", "bias")
    expected = {f"{ours}.{end}": GgufName(name=f"{theirs}.{end}") for ours, theirs in OTHERS.items() for end in ends}
    for layer in range(3):
        for ours, theirs in LAYER.items():
            for end in ends:
                own = GgufName(name=f"blk.{layer}.{theirs}.{end}", num_heads=heads.get(theirs, 0))
                expected[f"model.layers.{layer}.{ours}.{end}"] = own
    assert names.items() <= expected.items() and len(names) == 3 + 3 * (len(LAYER) + (0 if heads else 3))


def test_what_the_format_does_not_have_is_left_out():
    def change(model):
        model.extra = torch.nn.Linear(2, 2)
        model.layers[0].mlp.down_proj.register_buffer("scale", torch.ones(2))

    assert names_of("llama", "llama", change) == names_of("llama", "llama")


@pytest.mark.parametrize("architecture", ["gemma2", "t5", "llama9"])
def test_transformers_converts_the_others(architecture):
    assert names_of("llama", architecture) is None
