"""Cases of `test_families.py` for families with states that tokens change: what a case shows, then type and options."""

from __future__ import annotations

from typing import Any

YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
HEADS = {"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 12}

RECURRENT: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "lfm2": {
        "lfm2": ("lfm2", {}),
        "tied, biases, long kernel": ("lfm2", {"tie_word_embeddings": True, "conv_bias": True, "conv_L_cache": 5}),
        "rounded width": (
            "lfm2",
            {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 24},
        ),
        "yarn scaling, large epsilon": ("lfm2", {"rope_parameters": YARN, "norm_eps": 0.1}),
    },
    "qwen3_next": {
        "qwen3_next": ("qwen3_next", {}),
        "dense layer, not normalized": ("qwen3_next", {"mlp_only_layers": [1], "norm_topk_prob": False}),
        "every other layer, bias": ("qwen3_next", {"decoder_sparse_step": 2, "attention_bias": True}),
        "odd heads, short kernel, tied": (
            "qwen3_next",
            HEADS | {"linear_conv_kernel_dim": 2, "tie_word_embeddings": True},
        ),
        "yarn scaling": ("qwen3_next", {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}}),
    },
}
