"""Tiny random checkpoints of every architecture that the tests compile, made from configurations.

`SHAPES` are the options that most tests export with: one set, so that they share one entry of the compile cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY = 96

SHAPES: dict[str, Any] = {
    "batch_size": 2,
    "sequence_length": 48,
    "prefill_buckets": (16, 48),
    "decode_buckets": (20, 48),
    "torch_dtype": "float32",
    "optlevel": "1",
}
"""Small static shapes, exact arithmetic, and no C++ compiler."""

SMALL: dict[str, Any] = SHAPES | {"prefill_buckets": (16,), "decode_buckets": (48,), "extend_length": 1}
"""The same with two graphs instead of six, for tests that compile for real or often."""

NUM_BYTE_TOKENS = 259
"""Tokens of `save_tokenizer`: padding, begin, end, and the 256 bytes."""

_SHARED = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}
_SHARED |= {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
_SHARED |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 8},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "gemma3_text": {
        "head_dim": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": 8,
        # A random tied head repeats the token that it is given.
        "tie_word_embeddings": False,
    },
    "phi": {"num_key_value_heads": 4},
    "phi3": {},
    "gpt2": {"n_embd": 32, "n_layer": 3, "n_head": 4},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "gpt_neox": {},
    "granite": {"logits_scaling": 2.0, "residual_multiplier": 0.5, "embedding_multiplier": 3.0},
    "smollm3": {"no_rope_layer_interval": 2, "num_hidden_layers": 4},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
}
"""Model type to the configuration that it needs beyond the shared sizes."""

FAMILY_CONFIGS: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 8, "tie_word_embeddings": False},
    "gemma2": {
        "head_dim": 8,
        "sliding_window": 8,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 4.0,
        "tie_word_embeddings": False,
    },
    "olmo2": {},
    "cohere2": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "logit_scale": 0.5,
        "tie_word_embeddings": False,
    },
    "glm4": {"head_dim": 8, "attention_bias": True},
    "exaone4": {
        "head_dim": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "starcoder2": {"sliding_window": 8, "tie_word_embeddings": False},
    "stablelm": {"use_qkv_bias": True},
    "falcon": {"ffn_hidden_size": 64, "new_decoder_architecture": True, "num_kv_heads": 2},
    "bloom": {"n_layer": 3, "n_head": 4, "tie_word_embeddings": False},
    "mpt": {"d_model": 32, "n_layers": 3, "n_heads": 4, "tie_word_embeddings": False},
    "gptj": {"n_embd": 32, "n_layer": 3, "n_head": 4, "rotary_dim": 4},
    "lfm2": {
        "layer_types": ["conv", "full_attention", "conv"],
        "block_auto_adjust_ff_dim": False,
        "tie_word_embeddings": False,
    },
    "qwen3_next": {
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
    },
}
"""The same for families of decoders that only their own tests export. A random tied head may repeat its token."""


def tiny_config(model_type: str, **overrides: Any) -> Any:
    """A small transformers configuration."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[model_type](**{**_SHARED, **(CONFIGS | FAMILY_CONFIGS).get(model_type, {}), **overrides})


def save_tiny(folder: Path, model_type: str, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a random checkpoint with weights large enough that its tokens differ."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(tiny_config(model_type, **overrides))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.15)
            else:
                # Biases start at 0 and norms at 1: a test would not notice that one is left out.
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    model.save_pretrained(folder)
    return folder


def save_tokenizer(folder: Path) -> Path:
    """Write a tokenizer with one token for each byte and a chat template; any text round-trips."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(special + alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        padding_side="left",
        chat_template="{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}{% endfor %}",
    ).save_pretrained(folder)
    return folder


def write_config(folder: Path, **data: Any) -> Path:
    """Write a bare config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(data))
    return folder


def words_of(options: dict[str, Any]) -> list[str]:
    """Keywords of `main_export` as words of the command line; None leaves one out."""
    words = []
    for name, value in options.items():
        if value is None:
            continue
        if name == "optlevel":
            words.append(f"-O{value}")
        elif value is True:
            words.append("--" + name.replace("_", "-"))
        else:
            words += [f"--{name}", ",".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return words
