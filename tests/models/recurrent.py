"""Cases of `test_families.py` for families with states that tokens change: what a case shows, then type and options."""

from __future__ import annotations

from typing import Any

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}

LFM2: dict[str, Any] = {
    "layer_types": ["conv", "full_attention", "conv"],
    "block_auto_adjust_ff_dim": False,
    "tie_word_embeddings": False,
}
QWEN3_NEXT: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "head_dim": 16,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
HEADS = {"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 12}

RECURRENT: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "lfm2": {
        "lfm2": ("lfm2", LFM2),
        "tied, biases, long kernel": (
            "lfm2",
            LFM2 | {"tie_word_embeddings": True, "conv_bias": True, "conv_L_cache": 5},
        ),
        "rounded width": (
            "lfm2",
            LFM2 | {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 24},
        ),
        "yarn scaling, large epsilon": ("lfm2", LFM2 | {"rope_parameters": YARN, "norm_eps": 0.1}),
    },
    "qwen3_next": {
        "qwen3_next": ("qwen3_next", QWEN3_NEXT),
        "dense layer, not normalized": ("qwen3_next", QWEN3_NEXT | {"mlp_only_layers": [1], "norm_topk_prob": False}),
        "every other layer, bias": ("qwen3_next", QWEN3_NEXT | {"decoder_sparse_step": 2, "attention_bias": True}),
        "odd heads, short kernel, tied": (
            "qwen3_next",
            QWEN3_NEXT | HEADS | {"linear_conv_kernel_dim": 2, "tie_word_embeddings": True},
        ),
        "yarn scaling": ("qwen3_next", QWEN3_NEXT | {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}),
    },
}
