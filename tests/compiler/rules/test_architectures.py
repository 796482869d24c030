"""Tiny models of the supported architectures are accepted whole, in both attention implementations."""

import warnings

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from optimum_neuron.compiler.rules import check_graph
from optimum_neuron.hardware import TARGETS

SIZES = {"vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
COMMON = SIZES | {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = COMMON | {"num_key_value_heads": 2}
DECODERS = {
    "llama": GROUPED,
    "mistral": GROUPED,
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 8},
    "gemma3_text": GROUPED | {"head_dim": 8},
    "phi3": GROUPED,
    "gpt2": SIZES | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "opt": SIZES
    | {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32},
    "gpt_neox": COMMON,
    "granite": GROUPED,
    "smollm3": GROUPED,
    "mixtral": GROUPED | {"num_local_experts": 4, "num_experts_per_tok": 2},
}


def export_model(model, **inputs):
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.export.export(model.eval(), (), inputs, strict=False)


def decoder(name, length=8, **options):
    config = AutoConfig.for_model(name, **DECODERS[name])
    model = AutoModelForCausalLM.from_config(config, **options)
    ids, mask = torch.zeros(1, length, dtype=torch.int64), torch.ones(1, length, dtype=torch.int64)
    return export_model(model, input_ids=ids, attention_mask=mask, use_cache=False)


@pytest.mark.full(days=7)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", sorted(DECODERS))
def test_decoders_have_no_refusals(name, attention):
    options = {"experts_implementation": "batched_mm"} if name == "mixtral" else {}
    program = decoder(name, attn_implementation=attention, **options)
    for target in ("inf2", "trn2"):
        report = check_graph(program, TARGETS[target])
        report.raise_for_refusals()
        assert not [r for r in report.rulings if r.code]
        assert any("layers" in (r.module_path or "") or ".h." in (r.module_path or "") for r in report.rulings)


@pytest.mark.parametrize("head", ["BertModel", "BertForSequenceClassification", "BertForMaskedLM"])
def test_bert_has_no_refusals(head):
    model = getattr(transformers, head)(transformers.BertConfig(**COMMON))
    ids = torch.zeros(1, 8, dtype=torch.int64)
    program = export_model(model, input_ids=ids, attention_mask=torch.ones_like(ids))
    check_graph(program, TARGETS["inf2"]).raise_for_refusals()


def test_expert_sorting_is_refused_with_hint():
    program = decoder("mixtral", experts_implementation="grouped_mm")
    report = check_graph(program, TARGETS["inf2"])
    assert {r.op.split(".")[1] for r in report.refused} == {"sort", "histc", "grouped_mm_fallback"}
    assert {r.module_path for r in report.refused} == {"model.layers.0.mlp.experts", "model.layers.1.mlp.experts"}
    assert any('experts_implementation="batched_mm"' in r.remedy for r in report.refused)


def test_sequence_longer_than_positions_is_refused():
    program = decoder("gpt2", length=65)
    (error,) = check_graph(program, TARGETS["inf2"]).refused
    assert error.code == "NCC_EVRF056" and error.module_path == "transformer.wpe"
