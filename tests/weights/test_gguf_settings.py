"""Settings of GGUF files in configurations of transformers: values of published models, and what is refused.

Files are written by the package gguf of llama.cpp. `sources/test_gguf_settings.py` compares whole models.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import AutoConfig

from optimum_neuron.errors import ModelError
from optimum_neuron.weights import GgufFile, apply_gguf_settings, require_all_read, require_settings
from tests.raising import raises

gguf = pytest.importorskip("gguf")

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
SETTINGS = {"embedding_length": 64, "block_count": 2, "attention.head_count": 4}


def applied(folder, model_type, settings, tensors=(), *, architecture=None, **sizes):
    """Return a configuration after the settings of a file."""
    config = AutoConfig.for_model(model_type, **{**SIZES, **sizes})
    apply_gguf_settings(config, written(folder, architecture or model_type, settings, tensors))
    return config


def written(folder, architecture, settings, tensors=()):
    """Return a file of settings and tensors."""
    writer = gguf.GGUFWriter(folder / "m.gguf", architecture)
    add = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
    add[bool] = writer.add_bool
    for key, value in {**SETTINGS, **settings}.items():
        add[type(value)](f"{architecture}.{key}", value)
    for name, numbers in {"token_embd.weight": [0.0] * 32, **dict(tensors)}.items():
        writer.add_tensor(name, np.array(numbers, dtype=np.float32))
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return GgufFile.open(folder / "m.gguf")


@pytest.mark.parametrize(
    ("model_type", "layers", "hidden", "heads", "head", "scalar"),
    [
        ("gemma2", 42, 3584, 16, 256, 256),
        ("gemma2", 46, 4608, 32, 128, 144),
        ("gemma3_text", 48, 3840, 16, 256, 256),
        ("gemma3_text", 62, 5376, 32, 128, 168),
    ],
    ids=["gemma-2-9b", "gemma-2-27b", "gemma-3-12b", "gemma-3-27b"],
)
def test_gemma_scales_attention_as_published(model_type, layers, hidden, heads, head, scalar, tmp_path):
    """`query_pre_attn_scalar` of the configurations that Google published."""
    sizes = {"embedding_length": hidden, "block_count": layers, "attention.head_count": heads}
    sizes |= {"attention.head_count_kv": 16, "attention.key_length": head, "attention.value_length": head}
    own = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": 1}
    config = applied(tmp_path, model_type, sizes, architecture=model_type.removesuffix("_text"), **own)
    assert (config.query_pre_attn_scalar, config.head_dim, config.num_key_value_heads) == (scalar, head, 16)


def test_windows_and_caps_that_a_file_leaves_out(tmp_path):
    """llama.cpp's loader has a window of 4096 for Gemma 2 without one; 0 is no soft cap."""
    config = applied(tmp_path, "gemma2", {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 7.5})
    assert (config.sliding_window, config.attn_logit_softcapping, config.final_logit_softcapping) == (4096, None, 7.5)
    config = applied(tmp_path, "gemma3_text", {}, architecture="gemma3")
    assert config.sliding_window is None and set(config.layer_types) == {"full_attention"}
    config = applied(tmp_path, "gemma2", {"attention.sliding_window": 8}, {"output.weight": [0.0]})
    assert config.sliding_window == 8 and set(config.layer_types) == {"full_attention", "sliding_attention"}
    assert not config.tie_word_embeddings


def test_falcon_of_7b(tmp_path):
    """One key and value for all queries, in the order of the smaller models; Falcon 40B has groups in another order."""
    own = {"multi_query": False, "new_decoder_architecture": True, "parallel_attn": False}
    config = applied(tmp_path, "falcon", {"attention.head_count_kv": 1}, **own)
    assert (config.multi_query, config.new_decoder_architecture, config.parallel_attn) == (True, False, True)
    with pytest.raises(ModelError) as failure:
        applied(tmp_path, "falcon", {"attention.head_count_kv": 2})
    assert failure.value.details["key"] == "falcon.attention.head_count_kv"


def test_biases_and_heads_are_those_of_the_file(tmp_path):
    biases = {"blk.0.attn_q.bias": [0.0], "blk.0.ffn_up.bias": [0.0]}
    config = applied(tmp_path, "llama", {"attention.head_count_kv": 2, "attention.key_length": 8}, biases)
    assert config.attention_bias and config.mlp_bias and config.tie_word_embeddings
    assert (config.num_key_value_heads, config.head_dim) == (2, 8)
    config = applied(tmp_path, "llama", {}, attention_bias=True, mlp_bias=True, num_key_value_heads=1)
    assert not config.attention_bias and not config.mlp_bias
    assert (config.num_key_value_heads, config.head_dim) == (4, 16)


UNSET = {
    **{"expert_count": (0, 4), "expert_used_count": (0, 2), "expert_weights_scale": (0.0, 1.5)},
    **{"expert_group_count": (0, 2), "expert_group_used_count": (0, 1), "leading_dense_block_count": (0, 1)},
    **{"nextn_predict_layers": (0, 1), "attention.causal": (True, False), "attention.max_alibi_bias": (0.0, 8.0)},
    **{"attention.clamp_kqv": (0.0, 1.0), "attention.scale": (0.0, 0.5), "attention.sliding_window": (0, 8)},
    **{"pooling_type": (0, 1), "logit_scale": (0.0, 2.0), "residual_scale": (0.0, 0.5), "embedding_scale": (0.0, 2.0)},
    **{"attn_logit_softcapping": (0.0, 30.0), "final_logit_softcapping": (0.0, 30.0)},
    **{"rope.scaling.yarn_ext_factor": (1.0, 0.5), "rope.scaling.yarn_attn_factor": (1.0, 2.0)},
    **{"rope.scaling.yarn_log_multiplier": (0.0, 0.5), "rope.scaling.alpha": (0.0, 2.0)},
}
"""What llama.cpp takes as not set, and a value that changes results, of settings that Llama does not have."""


@pytest.mark.parametrize("key", UNSET)
def test_settings_that_are_not_set_change_nothing(key, tmp_path):
    unset, other = UNSET[key]
    assert applied(tmp_path, "llama", {key: unset}).to_dict() == applied(tmp_path, "llama", {}).to_dict()
    with pytest.raises(ModelError) as failure:
        applied(tmp_path, "llama", {key: other})
    assert (failure.value.details["key"], failure.value.details["value"]) == (f"llama.{key}", other)


LONG, SHORT, ANY = "rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"


def test_long_factors_may_be_without_short_ones(tmp_path):
    """ggml divides by one factor for each pair of a head of 16; attn_factor multiplies, and positions go on."""
    settings = {"rope.scaling.attn_factor": 1.5, "rope.scaling.original_context_length": 32}
    rope = applied(tmp_path, "llama", settings, {LONG: [2.0] * 8}).rope_parameters
    assert (rope["long_factor"], rope["short_factor"]) == ([2.0] * 8, [1.0] * 8)
    assert (rope["attention_factor"], rope["original_max_position_embeddings"]) == (1.5, 32)
    rope = applied(tmp_path, "llama", {"rope.scale_linear": 4.0}, {SHORT: [3.0] * 8}).rope_parameters
    assert (rope["long_factor"], rope["short_factor"]) == ([4.0] * 8, [12.0] * 8)
    rope = applied(tmp_path, "llama", {}, {ANY: [5.0] * 8}).rope_parameters
    assert rope["long_factor"] == rope["short_factor"] == [5.0] * 8
    rope = applied(tmp_path, "llama", {"rope.scaling.attn_factor": 1.5}).rope_parameters
    assert rope["long_factor"] == rope["short_factor"] == [1.0] * 8 and rope["attention_factor"] == 1.5
    settings = {"rope.scaling.original_context_length": 32, "rope.scaling.type": "longrope"}
    config = applied(tmp_path, "phi3", settings, {LONG: [2.0] * 8})
    assert config.original_max_position_embeddings == 32


PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
"""llama.cpp's frequencies without a setting."""


@pytest.mark.parametrize(
    ("model_type", "settings", "expected"),
    [
        ("llama", {}, PLAIN),
        ("llama", {"rope.scaling.factor": 0.0}, PLAIN),
        ("llama", {"attention.key_length": 8, "rope.dimension_count": 8}, PLAIN),
        ("llama", {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, PLAIN),
        ("llama", {"rope.scaling.type": "yarn", "rope.scaling.factor": 1.0}, PLAIN),
        (
            "llama",
            {"rope.scale_linear": 4.0, "rope.freq_base": 500.0},
            {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        ),
        (
            "qwen2",
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16},
            {
                **{"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16},
                **{"attention_factor": 1 + 0.1 * math.log(4), "beta_fast": 32.0, "beta_slow": 1.0},
            },
        ),
        ("phi3", {"rope.dimension_count": 8}, PLAIN | {"partial_rotary_factor": 0.5}),
        ("stablelm", {"rope.dimension_count": 16}, PLAIN | {"partial_rotary_factor": 1.0}),
        ("gemma3_text", {}, {"full_attention": PLAIN, "sliding_attention": PLAIN}),
    ],
)
def test_rotary_settings(model_type, settings, expected, tmp_path):
    architecture = model_type.removesuffix("_text")
    assert applied(tmp_path, model_type, settings, architecture=architecture).rope_parameters == expected


def test_divisors_apply_where_yarn_scales_nothing(tmp_path):
    settings = {"rope.scaling.type": "yarn", "rope.scaling.factor": 1.0}
    assert applied(tmp_path, "llama", settings, {ANY: [2.0] * 8}).rope_parameters["long_factor"] == [2.0] * 8


def test_fields_of_other_classes_are_not_set(tmp_path):
    assert not hasattr(applied(tmp_path, "qwen2", {}, {"blk.0.ffn_up.bias": [0.0]}), "mlp_bias")
    assert not hasattr(applied(tmp_path, "gpt2", {}), "rope_parameters")
    assert not hasattr(applied(tmp_path, "llama", {}, {ANY: [2.0] * 8}), "original_max_position_embeddings")
    assert applied(tmp_path, "bloom", {"feed_forward_length": 256}).hidden_size == 64
    assert applied(tmp_path, "bloom", {}).hidden_size == 64
    assert applied(tmp_path, "llama", {}, head_dim=8).head_dim == 16
    assert applied(tmp_path, "qwen2_moe", {"expert_count": 0}, num_experts=4).num_experts == 4
    config = AutoConfig.for_model("mamba", hidden_size=64, num_hidden_layers=2)
    apply_gguf_settings(config, written(tmp_path, "mamba", {"attention.head_count": 0, "ssm.conv_kernel": 4}))
    assert config.hidden_size == 64


def test_tensors_that_nothing_reads_are_named():
    file = SimpleNamespace(name="m.gguf", settings={}, entries=dict.fromkeys(("a", "b", ANY)))
    with raises(ModelError, tensors=["b"]):
        require_all_read(file, {"a"})
    require_all_read(file, {"a", "b"})
    with raises(ModelError, tensors=[*"bcdefg"]) as error:
        require_all_read(SimpleNamespace(name="m.gguf", settings={}, entries=dict.fromkeys("abcdefg")), {"a"})
    assert "b, c, d, e, and 2 more" in error.value.message


def test_experts_of_minimax_have_the_width_of_both_settings(tmp_path):
    """llama.cpp writes `intermediate_size` under two names (MiniMaxM2Model); transformers reads one of them."""
    widths = {"feed_forward_length": 96, "expert_feed_forward_length": 96, "expert_count": 8, "expert_used_count": 2}
    config = applied(tmp_path, "minimax_m2", widths, architecture="minimax-m2")
    assert (config.intermediate_size, config.num_local_experts, config.num_experts_per_tok) == (96, 8, 2)
    with raises(ModelError, key="minimax-m2.expert_feed_forward_length"):
        applied(tmp_path, "minimax_m2", widths | {"expert_feed_forward_length": 64}, architecture="minimax-m2")


@pytest.mark.parametrize(
    ("model_type", "settings", "tensors", "key"),
    [
        ("bloom", {"feed_forward_length": 100}, {}, "feed_forward_length"),
        ("gpt2", {"attention.head_count_kv": 2}, {}, "attention.head_count_kv"),
        ("gpt2", {"attention.key_length": 32}, {}, "attention.key_length"),
        ("gpt2", {}, {ANY: [1.0] * 8}, "rope"),
        ("gpt2", {"rope.freq_base": 500.0}, {}, "rope.freq_base"),
        ("llama", {"expert_used_count": [1, 2]}, {}, "expert_used_count"),
        ("llama", {"attention.key_length": [16, 8]}, {}, "attention.key_length"),
        ("llama", {"attention.value_length": 8}, {}, "attention.value_length"),
        ("llama", {"rope.dimension_count": 8}, {}, "rope.dimension_count"),
        ("llama", {"rope.freq_base_swa": 500.0}, {}, "rope.freq_base_swa"),
        ("llama", {"rope.scaling.type": "another"}, {}, "rope.scaling.type"),
        ("llama", {"rope.scaling.another": 500.0}, {}, "rope.scaling.another"),
        ("llama", {"rope.scaling.attn_factor": 2.0, "rope.scaling.type": "longrope"}, {}, "rope.scaling.type"),
        ("llama", {"rope.scaling.factor": 2.0, "rope.scaling.type": "yarn"}, {ANY: [1.0] * 8}, "rope.scaling.type"),
        ("llama", {}, {ANY: [1.0] * 7}, "rope.dimension_count"),
        ("llama", {}, {LONG: [1.0] * 9}, "rope.dimension_count"),
        ("qwen2", {"attention.sliding_window": 8}, {}, "attention.sliding_window"),
    ],
)
def test_what_cannot_be_expressed_is_named(model_type, settings, tensors, key, tmp_path):
    with pytest.raises(ModelError) as failure:
        applied(tmp_path, model_type, settings, tensors)
    assert failure.value.details["key"] == f"{model_type}.{key}"


def test_a_size_is_one_number_or_one_for_each_layer(tmp_path):
    """OpenELM has other heads and another feed-forward width in each layer; llama.cpp reads both from lists."""
    require_settings(written(tmp_path, "llama", {"attention.head_count": [2, 4], "feed_forward_length": 96}))
    require_settings(written(tmp_path, "llama", {"attention.head_count": 4, "feed_forward_length": [96, 0]}))
    with raises(ModelError, key="attention.head_count.1", value=65_537):
        require_settings(written(tmp_path, "llama", {"attention.head_count": [2, 65_537]}))
    with raises(ModelError, key="feed_forward_length", value="96"):
        require_settings(written(tmp_path, "llama", {"feed_forward_length": "96"}))


def test_equal_numbers_of_all_layers_are_one_number(tmp_path):
    """llama.cpp reads these settings from a list too; transformers reads lists of layers that differ."""
    one = {"attention.head_count_kv": 2, "attention.key_length": 8, "feed_forward_length": 96}
    lists = {key: [number] * 2 for key, number in one.items()}
    assert applied(tmp_path, "llama", lists).to_dict() == applied(tmp_path, "llama", one).to_dict()
    alone = applied(tmp_path, "llama", {"block_count": 1, "feed_forward_length": [96]})
    assert (alone.num_hidden_layers, alone.intermediate_size) == (1, 96)
    config = applied(tmp_path, "lfm2", {"attention.head_count_kv": [0, 2]}, num_key_value_heads=1)
    assert config.num_key_value_heads == 1
    assert applied(tmp_path, "llama", {"feed_forward_length": [96, 64]}, intermediate_size=9).intermediate_size == 9


ENDS = {
    **{"block_count": (1, 10_000), "context_length": (1, 2**40), "embedding_length": (1, 2**24)},
    **{"feed_forward_length": (0, 2**26), "attention.head_count": (0, 2**16), "attention.head_count_kv": (0, 2**16)},
    **{"attention.key_length": (1, 2**24), "attention.value_length": (1, 2**24), "rope.dimension_count": (1, 2**24)},
    **{"vocab_size": (1, 2**28), "expert_count": (0, 2**16), "expert_used_count": (0, 2**16)},
    **{"attention.layer_norm_rms_epsilon": (0.0, 1e15), "attention.layer_norm_epsilon": (0.0, 1e15)},
    **{"rope.freq_base": (1e-6, 1e15), "rope.freq_base_swa": (1e-6, 1e15), "rope.scaling.factor": (0.0, 1e15)},
    **{"rope.scale_linear": (0.0, 1e15), "rope.scaling.attn_factor": (0.0, 1e15)},
    "rope.scaling.original_context_length": (0, 2**40),
}
"""The least and the largest value of each setting; beyond them, nothing of a model is built."""


@pytest.mark.parametrize("key", sorted(ENDS))
def test_settings_have_limits(key):
    def check(value):
        require_settings(SimpleNamespace(name="m.gguf", settings={"general.architecture": "a", f"a.{key}": value}))

    least, most = ENDS[key]
    check(least)
    check(most)
    for value in (least - 1, most + 1) if isinstance(least, int) else (least - 1e-7, most * 1.1):
        with raises(ModelError, key=key, value=value):
            check(value)
