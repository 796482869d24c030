"""Tiny random models of every architecture that transformers runs as a causal language model.

Configurations name sizes in many ways. `SIZES` has a small value for each name, which every configuration and its
parts get where they have the field; `OVERRIDES` has what an architecture needs beyond that.
"""

from __future__ import annotations

import dataclasses
from typing import Any

VOCABULARY = 128
HIDDEN, HEADS, KV_HEADS, HEAD_WIDTH, FEED_FORWARD = 64, 4, 2, 16, 96

_NUM_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers", "num_decoder_layers")
_NUM_LAYERS += ("encoder_layers", "num_encoder_layers")
_HIDDEN = ("hidden_size", "d_model", "n_embd", "emb_dim", "backbone_hidden_size", "output_embedding_size", "dim")
_FEED_FORWARD = ("intermediate_size", "intermediate_size_mlp", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "dff")
_FEED_FORWARD += ("dim_ff", "ffn_hidden_size", "moe_intermediate_size", "expert_ffn_hidden_size", "d_inner")
_FEED_FORWARD += ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size")
_FEED_FORWARD += ("shared_experts_intermediate_size", "dense_intermediate_size", "feed_forward_size")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "swa_num_attention_heads")
_HEADS += ("decoder_attention_heads", "encoder_attention_heads", "num_decoder_attention_heads")
_HEADS += ("num_encoder_attention_heads", "linear_num_heads", "linear_num_key_heads", "linear_num_value_heads")
_HEADS += ("hc_lowrank",)
_HEAD_WIDTH = ("head_dim", "attention_head_size", "dim_head", "kv_channels", "swa_head_dim", "linear_head_dim")
_HEAD_WIDTH += ("linear_key_head_dim", "linear_value_head_dim", "index_head_dim", "v_head_dim", "router_hidden_size")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions", "context_length")
_POSITIONS += ("n_ctx", "max_source_positions")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_OF_A_TOKEN = ("num_experts_per_tok", "moe_topk", "moe_k")
_RANKS = ("q_lora_rank", "kv_lora_rank", "o_lora_rank", "laurel_rank", "adapter_rank", "gated_norm_rank")

SIZES: dict[str, Any] = {
    **dict.fromkeys(_NUM_LAYERS, 2),
    **dict.fromkeys(_HIDDEN, HIDDEN),
    **dict.fromkeys(_FEED_FORWARD, FEED_FORWARD),
    **dict.fromkeys(_HEADS, HEADS),
    **dict.fromkeys(("num_key_value_heads", "swa_num_key_value_heads", "num_kv_heads"), KV_HEADS),
    **dict.fromkeys(_HEAD_WIDTH, HEAD_WIDTH),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(_POSITIONS, 128),
    **dict.fromkeys(_EXPERTS, 4),
    **dict.fromkeys(_EXPERTS_OF_A_TOKEN, 2),
    **dict.fromkeys(_RANKS, 8),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "num_shared_experts"), 1),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window_size", "window_size"), 8),
    **dict.fromkeys(("local_attention", "index_topk"), 8),
    # A key that no head of an indexer likes has a score of 0, and which of several such is chosen is not defined.
    "index_n_heads": 16,
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size", "attention_chunk_size"), 8),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **{
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "query_pre_attn_scalar": 16,
        "first_k_dense_replace": 1,
    },
    **{"hidden_size_per_layer_input": 8, "embedding_size": 32, "input_embedding_size": 32, "type_vocab_size": 2},
    **{"is_decoder": True, "use_cache": True, "num_nextn_predict_layers": 0},
}
"""A field's name to its value in every tiny configuration that has the field."""

_LATENT = {"num_key_value_heads": HEADS}
"""Every head of latent attention has its own keys."""
_WIDTHS = {"q_lora_rank": 8, "kv_lora_rank": 8, "head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 16}
_GEMMA4 = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "num_kv_shared_layers": 0}
_QWEN4 = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 8}
_QWEN4 |= {"indexer_compress_ratio": 2, "ngram_vocab_size_base": 64, "split_ngram_parts": 2, "heads_per_ngram": 2}
_DOTS3 = _LATENT | {f"swa_{name}": value for name, value in (_LATENT | _WIDTHS).items()}
_DOTS3 |= {"swa_num_attention_heads": HEADS}
_ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
_HYBRID = ["linear_attention", "hybrid", "linear_attention", "hybrid"]
_BLT = {"max_position_embeddings": 128, "hidden_size_global": HIDDEN}

OVERRIDES: dict[str, dict[str, Any]] = {
    "axk2": _LATENT,
    "bamba": {"num_hidden_layers": 4, "attn_layer_indices": [1, 3]},
    "blt": {
        **{"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [3, 4]},
        **{f"encoder_config.{name}": value for name, value in _BLT.items()},
        **{f"decoder_config.{name}": value for name, value in _BLT.items()},
    },
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": _ROTARY, "sliding_attention": _ROTARY},
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0}},
    **dict.fromkeys(("axk1", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa"), _LATENT),
    **dict.fromkeys(("bailing_hybrid", "kimi_linear", "minicpm3", "youtu"), _LATENT),
    "dots3_note": {
        **{f"text_config.{name}": value for name, value in _DOTS3.items()},
        **{"vision_config.mlp_layer_types": ["dense", "sparse"], "vision_config.adapter_in_dim": HIDDEN},
        **{
            "vision_config.adapter_out_dim": HIDDEN,
            "audio_config.adapter_out_dim": HIDDEN,
            "audio_config.adapter_input_size": HIDDEN,
        },
    },
    "dots3_note_text": _DOTS3,
    "gemma3n_text": {"num_kv_shared_layers": 2, "num_hidden_layers": 4},
    "gemma4_assistant": {f"text_config.{name}": value for name, value in _GEMMA4.items()},
    "gemma4_unified_assistant": {f"text_config.{name}": value for name, value in _GEMMA4.items()},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2, "num_hidden_layers": 4},
    "jamba": {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    # Its code has no window of its own, only its cache: decoding sees one, a prompt does not.
    "moshi": {"sliding_window": 128},
    **dict.fromkeys(("lfm2", "lfm2_moe"), {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4}),
    "mllama": {"text_config.cross_attention_layers": [1]},
    "longcat_flash": _LATENT | {"zero_expert_num": 2, "head_dim": 8},
    "mamba2": {"num_heads": 8},
    "qwen4_exp": {f"text_config.{name}": value for name, value in _QWEN4.items()},
    "qwen4_exp_text": _QWEN4,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds_dim": [16, 48], "axial_pos_shape": [8, 16], "num_buckets": 4, "seed": 0},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"layers_block_type": _HYBRID, "num_hidden_layers": 4},
    "zamba2": {"layers_block_type": _HYBRID, "num_hidden_layers": 4},
    "zaya": {"num_experts_per_tok": 1},
}
"""Model type to fields that differ; a field of a part is written `text_config.field`."""


def tiny_decoder_config(model_type: str) -> Any:
    """A small transformers configuration of an architecture."""
    from transformers import CONFIG_MAPPING

    return _tiny(CONFIG_MAPPING[model_type], OVERRIDES.get(model_type, {}))


def tiny_decoder(model_type: str, *, config: Any = None, seed: int = 0) -> Any:
    """A transformers model with random weights large enough that its tokens differ, in float32.

    Raises:
        ValueError: the configuration is not tiny.
    """
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    config = config or tiny_decoder_config(model_type)
    with init_empty_weights(include_buffers=True):
        num_parameters = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())
    if num_parameters > 2e7:
        raise ValueError(f"{num_parameters / 1e6:.0f} million parameters are not tiny")
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
            else:
                # Biases start at 0 and norms at 1: a result would not show that one is left out.
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def _tiny(config_class: type, overrides: dict[str, Any]) -> Any:
    fields = {field.name for field in dataclasses.fields(config_class)}
    values = {name: value for name, value in SIZES.items() if name in fields}
    for name, part_class in _parts(config_class).items():
        inner = {key.removeprefix(f"{name}."): value for key, value in overrides.items() if key.startswith(f"{name}.")}
        values[name] = _tiny(part_class, inner)
    if "layer_types" in fields and "layer_types" not in overrides:
        kinds = list(dict.fromkeys(config_class().layer_types or ()))
        if kinds:
            # Two layers of each kind up to two kinds, and one of each of more.
            values["layer_types"] = kinds * 2 if len(kinds) < 3 else kinds
            values["num_hidden_layers"] = len(values["layer_types"])
    values |= {name: value for name, value in overrides.items() if "." not in name}
    return config_class(**values)


def _parts(config_class: Any) -> dict[str, type]:
    """Configurations that one consists of, such as that of the text, by field."""
    from transformers import CONFIG_MAPPING

    parts = {}
    for name, spec in config_class.sub_configs_defaults.items():
        part_class = CONFIG_MAPPING[spec.model_type] if spec.model_type else spec.config_class
        if dataclasses.is_dataclass(part_class) and not spec.optional:
            parts[name] = part_class
    return parts
