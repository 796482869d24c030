"""Which checkpoints the Llama family takes, and their sizes."""

from __future__ import annotations

from typing import Any

from ..common import DecoderConfig

MODEL_TYPES = ("llama", "mistral")
"""`model_type` values of checkpoints that this family covers."""


def uncovered(config: Any) -> str | None:
    """Say which option of a configuration this family does not implement, or None."""
    if config.hidden_act not in ("silu", "swish"):
        return f"hidden_act={config.hidden_act}"
    rope_type = (config.rope_parameters or {}).get("rope_type", "default")
    if rope_type in ("dynamic", "longrope"):
        return f"rope_type={rope_type} (frequencies depend on the length)"
    return None


def decoder_config(config: Any) -> DecoderConfig:
    """Sizes of a transformers `LlamaConfig` or `MistralConfig`."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope_type = config.rope_parameters.get("rope_type", "default")
    if rope_type == "default":
        # In float32 as the checkpoint was trained: double precision would shift late positions.
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
        frequencies, scale = 1.0 / config.rope_parameters["rope_theta"] ** exponents, 1.0
    else:
        frequencies, scale = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu")
    attention_bias = getattr(config, "attention_bias", False)
    return DecoderConfig(
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        inv_freq=tuple(frequencies.tolist()),
        rope_scale=scale,
        sliding_window=getattr(config, "sliding_window", None),
        attention_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=getattr(config, "mlp_bias", False),
        tie_embeddings=config.tie_word_embeddings,
    )
