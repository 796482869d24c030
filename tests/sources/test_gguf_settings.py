"""Settings of GGUF files that change results; each file is written from a model of transformers as llama.cpp does.

The model that was written is the reference: it has its own configuration, and reads no GGUF file. `GOLDEN` has the
last logits of llama.cpp itself (llama-cpp-python 0.3.36), whose activations have 16 bits.
"""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ModelError
from optimum_neuron.sources import load_source
from optimum_neuron.sources.tensors import load_original
from tests.tiny import SMALL, VOCABULARY, save_tiny

gguf = pytest.importorskip("gguf")

IDS = torch.arange(3, 33)[None]
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA3 = {
    **{"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64}
LONG |= {"short_factor": [1.0, 1.5, 2.0, 4.0, 4.0, 6.0, 7.0, 9.0], "long_factor": [3.0] * 8, "factor": 4.0}


def divisors(width, rope):
    """What convert_hf_to_gguf.py writes as rope_freqs.weight for Llama 3.1."""
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    numbers = []
    for index in range(0, width, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (index / width)
        smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"]
        )
        between = 1 / ((1 - smooth) / rope["factor"] + smooth)
        numbers.append(1.0 if length < high else rope["factor"] if length > low else between)
    return torch.tensor(numbers)


def save(folder, model_type, settings=(), tensors=(), *, edit=lambda name, weight: weight, **config):
    """Write a tiny model of transformers and the GGUF file of it; return both."""
    options = {**SIZES, "tie_word_embeddings": False, **config}
    original = AutoModelForCausalLM.from_pretrained(save_tiny(folder / "model", model_type, **options)).eval()
    own = original.config
    architecture = {"qwen3_moe": "qwen3moe", "gemma3_text": "gemma3", "mistral": "llama"}.get(model_type, model_type)
    head = getattr(own, "head_dim", None) or own.hidden_size // own.num_attention_heads
    keys = {
        **{"context_length": own.max_position_embeddings, "embedding_length": own.hidden_size},
        **{"feed_forward_length": own.intermediate_size, "block_count": own.num_hidden_layers},
        **{"attention.head_count": own.num_attention_heads, "attention.head_count_kv": own.num_key_value_heads},
        **{"rope.dimension_count": head, "attention.key_length": head, "attention.value_length": head},
        "attention.layer_norm_rms_epsilon": float(getattr(own, "rms_norm_eps", 1e-6)),
        **dict(settings),
    }
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    for key, value in keys.items():
        name = f"{architecture}.{key}"
        add = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string, bool: writer.add_bool}
        add[type(value)](name, value)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*(chr(33 + index) for index in range(VOCABULARY - 1)), "ab"])
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCABULARY)
    writer.add_token_merges(["a b"])
    writer.add_pad_token_id(0)
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    table = gguf.get_tensor_name_map(kinds[architecture], own.num_hidden_layers)
    for name, weight in original.state_dict().items():
        module, _, end = name.rpartition(".")
        if module == "lm_head" and own.tie_word_embeddings:
            continue
        place = f"{table.get_name(module)}.{end}"
        if architecture == "llama" and ("attn_q." in place or "attn_k." in place):
            heads = own.num_attention_heads if "attn_q." in place else own.num_key_value_heads
            weight = weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        writer.add_tensor(place, edit(place, weight).contiguous().numpy())
    for name, weight in dict(tensors).items():
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with torch.no_grad():
        return original(IDS).logits


def plus_one(name, weight):
    """Norms of Gemma as llama.cpp stores them."""
    return weight + 1 if name.endswith("norm.weight") else weight


SCALED = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}
FACTORS = {f"rope_factors_{kind}.weight": torch.tensor(LONG[f"{kind}_factor"]) for kind in ("long", "short")}
CASES = {
    "llama3": ("llama", {}, {"rope_freqs.weight": divisors(16, LLAMA3)}, {"rope_parameters": LLAMA3}),
    "linear": (
        "qwen2",
        {"rope.scaling.type": "linear", "rope.scaling.factor": 2.5},
        {},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}},
    ),
    "legacy linear": (
        "llama",
        {"rope.scale_linear": 2.0, "rope.freq_base": 500.0},
        {},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}},
    ),
    "yarn": ("qwen2", SCALED, {}, {"rope_parameters": YARN}),
    "yarn attention": (
        "llama",
        {**SCALED, "rope.scaling.attn_factor": 1.5},
        {},
        {"rope_parameters": {**YARN, "attention_factor": 1.5 * (1 + 0.1 * math.log(4))}},
    ),
    "longrope": (
        "phi3",
        {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": math.sqrt(1 + 1 / 3)},
        FACTORS,
        {"rope_parameters": LONG, "max_position_embeddings": 256, "original_max_position_embeddings": 64},
    ),
    "partial rotary": (
        "phi3",
        {"rope.dimension_count": 8},
        {},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}},
    ),
    "window": ("phi3", {"attention.sliding_window": 8}, {}, {"sliding_window": 8}),
    "key length": ("qwen3", {}, {}, {"head_dim": 32}),
    "biases": ("llama", {}, {}, {"attention_bias": True, "mlp_bias": True}),
    "caps": (
        "gemma2",
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 4.0, "attention.sliding_window": 8},
        {},
        {"edit": plus_one, "head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True},
    ),
    "two bases": (
        "gemma3_text",
        {
            **{"rope.freq_base": 50000.0, "rope.freq_base_swa": 500.0, "attention.sliding_window": 8},
            **{"rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        },
        {},
        {
            **{"edit": plus_one, "head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True},
            "num_hidden_layers": 6,
            "layer_types": [*["sliding_attention"] * 5, "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 50000.0},
            },
        },
    ),
}


GOLDEN = {
    "biases": [0.0757, -0.5968, 0.7135, 0.7035],
    "caps": [-0.1245, 0.9452, -0.4292, -1.3205],
    "key length": [-0.6958, 1.1839, -1.1232, -0.4158],
    "legacy linear": [-1.0867, -2.3719, -1.8977, -0.2425],
    "linear": [1.4854, 2.002, 1.13, 1.1112],
    "llama3": [-3.4319, -1.23, -0.5125, 1.7935],
    "partial rotary": [0.34, 0.1507, 1.1286, -0.1448],
    "two bases": [1.0922, 2.0349, -2.2711, 1.0332],
    "yarn": [1.564, 0.8777, 0.5519, 1.1683],
    "yarn attention": [-2.5886, -1.7776, -1.0626, 0.1447],
}
"""It has no windows of Phi-3, and chooses between long and short factors by the size of its cache."""


@pytest.mark.full(days=3)
@pytest.mark.parametrize("case", CASES)
def test_settings_are_read(case, tmp_path):
    model_type, settings, tensors, config = CASES[case]
    expected = save(tmp_path, model_type, settings, tensors, **config)
    read = load_original(load_source(tmp_path, gguf_file="model.gguf"), task="text-generation", dtype="float32")
    with torch.no_grad():
        logits = read(IDS).logits
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=1e-4)
    if case in GOLDEN:
        torch.testing.assert_close(logits[0, -1, :4], torch.tensor(GOLDEN[case]), atol=1e-2, rtol=0)


def test_divided_frequencies_are_compiled(tmp_path):
    """The optimized family computes Llama 3.1's positions, and the model knows them without its file."""
    expected = save(tmp_path, "llama", {}, CASES["llama3"][2], rope_parameters=LLAMA3)
    model = NeuronModelForCausalLM.from_pretrained(tmp_path, gguf_file="model.gguf", export=True, **SMALL)
    assert model.describe()["family"]["value"] == "llama"
    torch.testing.assert_close(model(IDS[:, :12]).logits, expected[:, :12], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("llama", "expert_count", 4),
        ("llama", "logit_scale", 2.0),
        ("llama", "residual_scale", 0.5),
        ("llama", "attention.scale", 0.125),
        ("llama", "attention.sliding_window", 8),
        ("llama", "attention.causal", False),
        ("llama", "attention.value_length", 8),
        ("llama", "rope.dimension_count", 8),
        ("llama", "rope.scaling.type", "other"),
        ("llama", "rope.scaling.yarn_log_multiplier", 0.125),
        ("llama", "a_setting_of_tomorrow", 1),
        ("qwen2", "attention.key_length", 32),
        ("qwen2", "attn_logit_softcapping", 30.0),
        ("qwen2", "rope.scaling.alpha", 2.0),
    ],
)
def test_other_settings_are_named(architecture, key, value, tmp_path):
    save(tmp_path, architecture, {key: value})
    with pytest.raises(ModelError) as failure:
        load_source(tmp_path, gguf_file="model.gguf")
    assert failure.value.details["key"] == f"{architecture}.{key}" and failure.value.details["value"] == value


def test_settings_that_change_nothing_are_accepted(tmp_path):
    neutral = {"expert_count": 0, "logit_scale": 0.0, "rope.scaling.type": "none", "rope.scaling.finetuned": True}
    save(tmp_path, "llama", {**neutral, "rope.scaling.factor": 4.0})
    assert load_source(tmp_path, gguf_file="model.gguf").config.rope_parameters["rope_type"] == "default"


@pytest.mark.parametrize(("model_type", "name"), [("llama", "output.bias"), ("gemma2", "blk.0.attn_q_norm.weight")])
def test_a_tensor_that_nothing_reads_is_named(model_type, name, tmp_path):
    save(tmp_path, model_type, {}, {name: torch.ones(16)}, tie_word_embeddings=model_type == "gemma2")
    with pytest.raises(ModelError) as failure:
        load_source(tmp_path, gguf_file="model.gguf")
    assert failure.value.details["tensors"] == [name]
