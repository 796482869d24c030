"""Every family against transformers in float32: all options of its checkpoints, and its map of weights."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch.func import functional_call

from optimum_neuron.kinds.decoder import decoder_captures
from optimum_neuron.models import build_decoder, choose_family, families, key_value_state, persistent_buffers
from optimum_neuron.options.configuration import NeuronConfig
from tests.models.cores import SharedPair
from tests.models.mixtures import MIXTURES
from tests.models.recurrent import RECURRENT
from tests.models.steps import NUM_COLUMNS, NUM_TOKENS, check_steps, pair
from tests.tiny import tiny_config

ROPE = {"rope_theta": 10_000.0, "factor": 4.0}
YARN = ROPE | {"rope_type": "yarn", "original_max_position_embeddings": 16}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}

LINEAR = ROPE | {"rope_type": "linear"}
WINDOWS = {"num_hidden_layers": 4, "sliding_window": 4}
KINDS = {"layer_types": ["sliding_attention", "full_attention"] * 2}
GROUPED, SINGLE = {"num_key_value_heads": 2}, {"num_key_value_heads": 1}
TIED, UNTIED = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}
BIASES = {"attention_bias": True}

GEMMA = {"head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 12}
"""Random tied heads of Gemma repeat the token that they are given."""
GRANITE = {"embedding_multiplier": 3.0, "attention_multiplier": 0.3, "residual_multiplier": 0.5, "logits_scaling": 2.0}
THETAS = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 8.0},
}
GPT = {"n_embd": 32, "n_layer": 3, "n_head": 4}
FALCON = {"ffn_hidden_size": 64, "alibi": False}
MPT = {"max_seq_len": 32}
PARTIAL = {"partial_rotary_factor": 0.5}

FAMILIES: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "llama": {
        "llama": ("llama", {}),
        "tied": ("llama", TIED),
        "every bias": ("llama", BIASES | {"mlp_bias": True}),
        "every head its own": ("llama", {"num_key_value_heads": 4}),
        "one key head": ("llama", SINGLE),
        "wide heads": ("llama", {"head_dim": 16}),
        "large epsilon": ("llama", {"rms_norm_eps": 0.1}),
        "gelu": ("llama", {"hidden_act": "gelu"}),
        "theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
        "linear scaling": ("llama", {"rope_parameters": LINEAR}),
        "llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
        "yarn scaling": ("llama", {"rope_parameters": YARN}),
        "mistral": ("mistral", {"sliding_window": None}),
        "sliding window": ("mistral", {"sliding_window": 4}),
        "window of one": ("mistral", {"sliding_window": 1}),
        "wide window": ("mistral", {"sliding_window": 64}),
    },
    "qwen2": {
        "grouped": ("qwen2", GROUPED),
        "tied, one key head": ("qwen2", SINGLE | TIED),
        "windows above": ("qwen2", WINDOWS | {"use_sliding_window": True, "max_window_layers": 2}),
        "yarn scaling": ("qwen2", {"rope_parameters": YARN}),
    },
    "qwen3": {
        "wide heads": ("qwen3", {"head_dim": 16}),
        "tied, biases": ("qwen3", {"head_dim": 8} | TIED | BIASES),
        "windows": ("qwen3", WINDOWS | {"head_dim": 8, "use_sliding_window": True, "max_window_layers": 1}),
        "yarn scaling": ("qwen3", {"head_dim": 8, "rope_parameters": YARN}),
    },
    "granite": {
        "every factor": ("granite", GRANITE),
        "tied, every bias": ("granite", GRANITE | TIED | BIASES | {"mlp_bias": True}),
    },
    "smollm3": {
        "no positions": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2} | UNTIED),
        "tied, windows": ("smollm3", WINDOWS | {"no_rope_layers": [1, 1, 0, 1], "use_sliding_window": True} | TIED),
        "windows by type of layer": ("smollm3", WINDOWS | {"no_rope_layers": [1, 0, 0, 1]} | KINDS | UNTIED),
        "yarn scaling, biases": ("smollm3", {"rope_parameters": YARN, "mlp_bias": True} | BIASES | UNTIED),
    },
    "olmo2": {
        "every head its own": ("olmo2", {"num_key_value_heads": 4}),
        "grouped, biases": ("olmo2", GROUPED | BIASES),
        "yarn scaling": ("olmo2", {"rope_parameters": YARN}),
    },
    "gemma": {
        "wide heads": ("gemma", {"head_dim": 16, "num_key_value_heads": 4} | UNTIED),
        "tied, one key head": ("gemma", {"head_dim": 16, "hidden_act": "gelu"} | SINGLE | TIED),
        "biases": ("gemma", {"head_dim": 8} | BIASES | UNTIED),
    },
    "gemma2": {
        "bounds, windows": (
            "gemma2",
            GEMMA | WINDOWS | {"attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0} | UNTIED,
        ),
        "one key head": ("gemma2", GEMMA | WINDOWS | SINGLE | UNTIED),
        "tied, no bounds": (
            "gemma2",
            GEMMA | WINDOWS | {"attn_logit_softcapping": None, "final_logit_softcapping": None} | TIED | BIASES,
        ),
    },
    "gemma3_text": {
        "two rotary bases": ("gemma3_text", GEMMA | WINDOWS | KINDS | {"rope_parameters": THETAS} | UNTIED),
        "tied, bounded logits": (
            "gemma3_text",
            GEMMA | WINDOWS | KINDS | {"final_logit_softcapping": 2.0} | TIED,
        ),
    },
    "phi3": {
        "grouped": ("phi3", GROUPED),
        "window": ("phi3", {"num_key_value_heads": 4, "sliding_window": 4}),
        "partial rotary, tied": ("phi3", GROUPED | PARTIAL | TIED),
    },
    "gpt2": {
        "gpt2": ("gpt2", GPT),
        "untied, width": ("gpt2", GPT | UNTIED | {"n_inner": 40}),
        "scores by layer": ("gpt2", GPT | {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
        "unscaled scores": ("gpt2", GPT | {"scale_attn_weights": False, "activation_function": "relu"}),
    },
    "starcoder2": {
        "window, tied": ("starcoder2", {"sliding_window": 4, "use_bias": True} | TIED),
        "no biases": ("starcoder2", {"use_bias": False} | UNTIED),
    },
    "cohere2": {
        "windows": ("cohere2", WINDOWS | KINDS | UNTIED),
        "tied, biases": ("cohere2", WINDOWS | TIED | BIASES | {"layer_types": None, "sliding_window_pattern": 2}),
    },
    "glm4": {
        "partial rotary": ("glm4", {"head_dim": 8} | BIASES),
        "tied, whole rotary": ("glm4", {"head_dim": 16, "partial_rotary_factor": 1.0} | TIED),
    },
    "phi": {
        "phi": ("phi", {"num_key_value_heads": 4}),
        "grouped": ("phi", GROUPED | {"partial_rotary_factor": 0.25}),
        "norms of heads": ("phi", {"qk_layernorm": True} | GROUPED),
    },
    "stablelm": {
        "partial rotary": ("stablelm", {"num_key_value_heads": 4}),
        "biases, tied": ("stablelm", {"use_qkv_bias": True} | GROUPED | PARTIAL | TIED),
        "parallel": ("stablelm", {"use_parallel_residual": True}),
    },
    "gpt_neox": {
        "parallel": ("gpt_neox", {}),
        "one after the other": ("gpt_neox", {"use_parallel_residual": False, "rotary_pct": 1.0}),
        "no biases, tied": ("gpt_neox", {"attention_bias": False, "hidden_act": "gelu_new"} | TIED),
    },
    "opt": {
        "opt": ("opt", {"ffn_dim": 64, "word_embed_proj_dim": 32}),
        "no biases": ("opt", {"ffn_dim": 40, "word_embed_proj_dim": 32, "enable_bias": False} | UNTIED),
    },
    "exaone4": {
        "windows": ("exaone4", WINDOWS | {"head_dim": 8} | KINDS),
        "no windows, tied": (
            "exaone4",
            {"head_dim": 16, "sliding_window": None, "layer_types": ["full_attention"] * 3} | TIED,
        ),
        "llama3 scaling": ("exaone4", WINDOWS | {"rope_parameters": LLAMA3} | KINDS),
    },
    "falcon": {
        "one key head": ("falcon", FALCON),
        "groups, two norms": ("falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
        "groups, one norm": (
            "falcon",
            FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1} | UNTIED,
        ),
        "every head its own": ("falcon", FALCON | {"multi_query": False}),
    },
    "mpt": {
        "mpt": ("mpt", MPT),
        "bounds, odd heads": (
            "mpt",
            MPT
            | {
                "hidden_size": 24,
                "num_attention_heads": 3,
                "attn_config": {"clip_qkv": 0.5, "softmax_scale": 0.2, "alibi_bias_max": 4},
            },
        ),
    },
    "bloom": {
        "bloom": ("bloom", {"n_layer": 3, "n_head": 4}),
        "odd heads, untied": ("bloom", {"n_layer": 3, "n_head": 6, "hidden_size": 48} | UNTIED),
    },
    "gptj": {
        "gptj": ("gptj", GPT | {"rotary_dim": 4}),
        "whole rotary, width": ("gptj", GPT | {"rotary_dim": 8, "n_inner": 40}),
    },
    **MIXTURES,
    **RECURRENT,
}
"""Family, then what a case shows, then model type and options."""

UNCOVERED: dict[str, tuple[dict[str, Any], str]] = {
    "gemma": ({"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    "gemma2": ({"hidden_activation": "tanh"}, "hidden_activation=tanh"),
    "gemma3_text": ({"attn_logit_softcapping": 2.0}, "attn_logit_softcapping=2.0"),
    "gpt2": ({"add_cross_attention": True}, "add_cross_attention=True"),
    "opt": ({"do_layer_norm_before": False, "word_embed_proj_dim": 32}, "do_layer_norm_before=False"),
    "stablelm": ({"qk_layernorm": True}, "qk_layernorm=True"),
    "falcon": ({"alibi": True}, "alibi=True"),
    "lfm2": ({"rope_parameters": ROPE | {"rope_type": "dynamic"}}, "rope_type=dynamic"),
    "qwen3_next": ({"hidden_act": "gelu"}, "hidden_act=gelu"),
    "qwen3": ({"layer_types": ["full_attention", "conv", "full_attention"]}, "layer_types=conv"),
    "bloom": ({"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm=True"),
}
"""Model type to an option that its family leaves to transformers' own code."""

CASES = [
    pytest.param(family, model_type, options, id=f"{family}: {what}")
    for family, cases in FAMILIES.items()
    for what, (model_type, options) in cases.items()
]


def test_every_family_and_model_type_is_in_the_table():
    assert FAMILIES.keys() == families().keys()
    for name, module in families().items():
        assert {model_type for model_type, _ in FAMILIES[name].values()} == set(module.MODEL_TYPES)


@pytest.mark.full(days=7)
@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_prompt_decode_and_extend_give_the_logits_of_transformers(family, model_type, overrides):
    models = pair(model_type, **overrides)
    assert models.family.choice.value == family
    check_steps(models)


@pytest.mark.parametrize(("model_type", "overrides", "gap"), [(t, *case) for t, case in UNCOVERED.items()])
def test_what_a_family_does_not_cover_is_generic(model_type, overrides, gap):
    choice = choose_family(tiny_config(model_type, **overrides))
    assert choice.value == "generic" and gap in choice.reason


@pytest.mark.full(days=7)
@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_every_tensor_is_used_once_and_every_parameter_has_a_source(family, model_type, overrides):
    models = pair(model_type, **overrides)
    tied = bool(models.original.config.tie_word_embeddings)
    tensors = {name for name in models.original.state_dict() if not (tied and name == "lm_head.weight")}
    used = collections.Counter(source for sources in models.family.weight_sources.values() for source in sources)
    assert used == dict.fromkeys(tensors, 1)
    module = models.family.module
    parameters = dict((*module.named_parameters(), *persistent_buffers(module)))
    assert models.family.weight_sources.keys() == parameters.keys()
    assert all(models.weights[name].shape == parameter.shape for name, parameter in parameters.items())
    assert (models.family.module.head.weight is models.family.module.embed.weight) == tied


@pytest.mark.full(days=7)
@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_two_cores_give_the_logits_of_one(family, model_type, overrides):
    models = pair(model_type, **overrides)
    shared = SharedPair.of(models, 2)
    split = shared.families[0].shards.of_weights
    heads = "attention.kv_up.weight" if family == "deepseek_v3" else "attention.qkv.weight"
    assert {path.split(".", 2)[-1] for path in split} > {heads, "attention.out.weight"}
    check_steps(shared)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "gpt_neox", "phi3", "olmo2"])
def test_heads_that_cores_do_not_divide_are_padded(model_type):
    heads = {"num_attention_heads": 3, "num_key_value_heads": 3, "hidden_size": 24}
    sizes = {"n_head": 3, "n_embd": 24} if model_type == "gpt2" else heads
    check_steps(SharedPair.of(pair(model_type, **sizes), 2))


def test_eight_cores_with_every_bias_and_three_key_heads():
    heads = {"hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 100}
    check_steps(SharedPair.of(pair("llama", **heads, head_dim=8, mlp_bias=True, **BIASES), 8))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_and_caches_in_bfloat16(family):
    model_type, overrides = next(iter(FAMILIES[family].values()))
    models = pair(model_type, **overrides)
    module = build_decoder(models.original.config, dtype="bfloat16").module
    weights = {name: weight.bfloat16() for name, weight in models.weights.items()}
    dtypes = [tensor.dtype for layer in models.family.states for tensor in layer]
    states = [state if dtype else state.bfloat16() for state, dtype in zip(models.new_states(), dtypes, strict=True)]
    ids, positions = torch.randint(3, 90, (2, NUM_COLUMNS)), torch.arange(NUM_COLUMNS).expand(2, -1)
    with torch.no_grad():
        wanted = models.original(torch.cat([ids, ids[:, :1]], 1)).logits
        options = {"num_slots": None, **models.counts(NUM_COLUMNS, NUM_COLUMNS)}
        prompt = functional_call(module, weights, (ids, positions, states), options)
        one = (ids[:, :1], torch.full((2, 1), NUM_COLUMNS), states)
        token = functional_call(module, weights, one, {"num_slots": NUM_TOKENS, **models.counts(1, 1)})
    found = torch.cat([prompt, token], 1)
    assert found.dtype == torch.float32
    assert (found - wanted).norm() < 0.05 * wanted.norm()


@pytest.mark.parametrize("model_type", ["olmo2", "qwen3", "gemma2", "starcoder2", "falcon"])
def test_key_heads_of_several_cores_are_copied(model_type):
    models = SharedPair.of(pair(model_type), 4)
    keys, _ = models.families[0].states[0]
    assert keys.sizes[0] == 1
    check_steps(models)


def test_key_heads_of_linear_attention_are_copied():
    models = SharedPair.of(pair("qwen3_next"), 4)
    _, state = models.families[0].states[0]
    assert state.sizes == (1, 8, 12)
    check_steps(models)


def test_what_lies_beyond_the_window_has_no_influence_and_what_lies_in_it_has():
    models = pair("mistral", sliding_window=4, num_hidden_layers=1)
    ids = torch.randint(3, 90, (2, NUM_COLUMNS))
    positions = torch.arange(NUM_COLUMNS).expand(2, -1)

    def last_logits(ids):
        return models.run(ids, positions, models.new_states(), num_slots=None)[0, -1]

    far, near = ids.clone(), ids.clone()
    far[:, NUM_COLUMNS - 5] += 1
    near[:, NUM_COLUMNS - 4] += 1
    assert torch.equal(last_logits(far), last_logits(ids))
    assert not torch.equal(last_logits(near), last_logits(ids))


def test_slots_of_padding_and_of_later_tokens_are_not_seen():
    models = pair("llama")
    ids, positions = torch.randint(3, 90, (2, 1)), torch.tensor([[5], [5]])
    clean, dirty = models.new_states(), models.new_states()
    filled = torch.randint(3, 90, (2, NUM_COLUMNS)), torch.arange(NUM_COLUMNS).expand(2, -1)
    models.run(*filled, dirty, num_slots=None)
    models.run(filled[0][:, :5], filled[1][:, :5], clean, num_slots=None)
    found = [models.run(ids, positions, states, num_slots=NUM_TOKENS) for states in (clean, dirty)]
    torch.testing.assert_close(*found)


def test_logits_are_float32_and_the_cache_takes_the_weights_dtype():
    family = build_decoder(tiny_config("llama"), dtype="bfloat16")
    assert {parameter.dtype for parameter in family.module.parameters()} == {torch.bfloat16}
    assert {parameter.device.type for parameter in family.module.parameters()} == {"meta"}
    assert family.module.inv_freq_0.dtype == torch.float32 and family.module.inv_freq_0.device.type == "cpu"
    assert family.states == (key_value_state(2, 8, 8),) * 3
    assert family.module.head(torch.ones(1, 32, dtype=torch.bfloat16, device="meta")).dtype == torch.float32


def test_the_configuration_in_plain_numbers():
    found = build_decoder(tiny_config("mistral", sliding_window=4, head_dim=8), dtype="float32").module.config
    (kind,) = set(found.layers)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, kind.window) == (4, 2, 8, 4)
    assert kind.rotary.inv_freq == pytest.approx([10_000 ** (-i / 4) for i in range(4)])
    yarn = build_decoder(tiny_config("llama", rope_parameters=YARN), dtype="float32").module.config
    assert yarn.rotaries[0].scale == pytest.approx(1.1386294)


@pytest.mark.parametrize(("model_type", "num_captured"), [("llama", 2), ("deepseek_v3", 3)])
def test_layers_of_a_kind_are_captured_once(model_type, num_captured):
    overrides = MIXTURES["deepseek_v3"]["deepseek_v3"][1] if model_type == "deepseek_v3" else {}
    family = build_decoder(tiny_config(model_type, **overrides, num_hidden_layers=6), dtype="float32")
    config = NeuronConfig(batch_size=1, sequence_length=16, prefill_buckets=(16,), decode_buckets=(16,))
    (stack,) = decoder_captures(family, config)[0](True).stacks
    assert (stack.captured.value, stack.num_layers) == (num_captured, 6)
