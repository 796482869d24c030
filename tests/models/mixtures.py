"""Cases of `test_families.py` for families with experts: what a case shows, then model type and options."""

from __future__ import annotations

from typing import Any

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}

QWEN: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 8}
QWEN2 = QWEN | {"shared_expert_intermediate_size": 40, "decoder_sparse_step": 1}
GPT_OSS: dict[str, Any] = {
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "head_dim": 8,
    "sliding_window": 4,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
DEEPSEEK: dict[str, Any] = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "moe_intermediate_size": 24,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
}
LLAMA4: dict[str, Any] = {
    "num_local_experts": 4,
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 48,
    "attention_chunk_size": 4,
    "head_dim": 8,
    "num_hidden_layers": 4,
    "no_rope_layers": [1, 0, 1, 0],
    "interleave_moe_layer_step": 2,
    "floor_scale": 4,
}

MIXTURES: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "mixtral": {
        "mixtral": ("mixtral", {}),
        "sliding window": ("mixtral", {"sliding_window": 4}),
        "every expert": ("mixtral", {"num_experts_per_tok": 4}),
    },
    "qwen_moe": {
        "qwen3": ("qwen3_moe", QWEN),
        "qwen3, normalized": ("qwen3_moe", QWEN | {"norm_topk_prob": True}),
        "qwen3, dense layers": ("qwen3_moe", QWEN | {"mlp_only_layers": [0]}),
        "qwen3, window": ("qwen3_moe", QWEN | {"use_sliding_window": True, "sliding_window": 4}),
        "qwen3, bias": ("qwen3_moe", QWEN | {"attention_bias": True}),
        "qwen2": ("qwen2_moe", QWEN2),
        "qwen2, normalized": ("qwen2_moe", QWEN2 | {"norm_topk_prob": True}),
        "qwen2, every other layer": ("qwen2_moe", QWEN2 | {"decoder_sparse_step": 2}),
        "qwen2, without bias": ("qwen2_moe", QWEN2 | {"qkv_bias": False}),
        "qwen2, some windows": (
            "qwen2_moe",
            QWEN2 | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        ),
    },
    "gpt_oss": {
        "gpt_oss": ("gpt_oss", GPT_OSS),
        "small limit": ("gpt_oss", GPT_OSS | {"swiglu_limit": 0.1}),
        "without attention bias": ("gpt_oss", GPT_OSS | {"attention_bias": False}),
        "unscaled rotary": ("gpt_oss", GPT_OSS | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    },
    "deepseek_v3": {
        "deepseek_v3": ("deepseek_v3", DEEPSEEK),
        "not normalized": ("deepseek_v3", DEEPSEEK | {"norm_topk_prob": False}),
        "query in one step": ("deepseek_v3", DEEPSEEK | {"q_lora_rank": None}),
        "rotary halves": ("deepseek_v3", DEEPSEEK | {"rope_interleave": False}),
        "bias": ("deepseek_v3", DEEPSEEK | {"attention_bias": True}),
        "yarn": ("deepseek_v3", DEEPSEEK | {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}),
        "only experts": ("deepseek_v3", DEEPSEEK | {"first_k_dense_replace": 0, "n_shared_experts": 2}),
    },
    "llama4_text": {
        "llama4": ("llama4_text", LLAMA4),
        "two experts": ("llama4_text", LLAMA4 | {"num_experts_per_tok": 2, "interleave_moe_layer_step": 1}),
        "without norm of heads": ("llama4_text", LLAMA4 | {"use_qk_norm": False}),
        "not tuned": ("llama4_text", LLAMA4 | {"attn_temperature_tuning": False}),
        "bias": ("llama4_text", LLAMA4 | {"attention_bias": True}),
        "rotary everywhere": ("llama4_text", LLAMA4 | {"no_rope_layers": [1, 1, 1, 1]}),
    },
}
