"""Tiny random encoder-decoders, one for each architecture that is tested, made from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.encoders import randomize

VOCABULARY, SOURCE, TARGET = 96, 16, 12

SHAPES: dict[str, Any] = {
    "batch_size": 2,
    "sequence_length": [8, SOURCE],
    "decoder_sequence_length": TARGET,
    "optlevel": "1",
}
"""Small static shapes, and no C++ compiler."""

_T5 = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4}
# transformers' own generate fails where T5 has more layers in the decoder than in the encoder.
_T5 |= {"num_layers": 3, "num_decoder_layers": 3, "relative_attention_num_buckets": 8, "decoder_start_token_id": 0}
SIZES = {"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3}
SIZES |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
SIZES |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
SIZES |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
"""Options that Bart and Whisper name alike."""

_BART = SIZES | {"max_position_embeddings": 40, "decoder_start_token_id": 2, "forced_eos_token_id": None}

TINY: dict[str, dict[str, Any]] = {
    "t5": _T5,
    "mt5": _T5 | {"tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"},
    "bart": _BART,
    "mbart": _BART,
    "marian": _BART | {"decoder_vocab_size": VOCABULARY},
    "pegasus": _BART,
    "m2m_100": _BART,
}
"""Model type to the options of its configuration."""


def save_tiny_seq2seq(folder: Path, model_type: str, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a random checkpoint whose tokens differ: its logits are spread."""
    from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[model_type](**{**TINY[model_type], **overrides}))
    spread(model, seed=seed).save_pretrained(folder)
    return folder


def spread(model: Any, *, seed: int, factor: float = 1.5) -> Any:
    """Random weights, with larger ones in the decoder."""
    import torch

    randomize(model, seed=seed)
    with torch.no_grad():
        for parameter in model.get_decoder().parameters():
            parameter.mul_(factor)
    return model
