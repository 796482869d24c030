"""Tiny random models that transcribe, one for each architecture that is tested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.seq2seq import SIZES, VOCABULARY, spread as spread_logits

TARGET, FRAMES, MELS = 40, 100, 8
SAMPLES = (3000, 6000)
"""Buckets of recordings."""

_MOONSHINE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48}
_MOONSHINE |= {"encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 3}
_MOONSHINE |= dict.fromkeys(("encoder_num_attention_heads", "decoder_num_attention_heads"), 4)
_MOONSHINE |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 50}
TINY: dict[str, dict[str, Any]] = {
    "whisper": SIZES
    | {"num_mel_bins": MELS, "max_source_positions": FRAMES // 2, "max_target_positions": TARGET}
    | {"decoder_start_token_id": 50},
    "moonshine": _MOONSHINE | {"max_position_embeddings": TARGET},
}
"""Model type to the options of its configuration."""

SHAPES: dict[str, dict[str, Any]] = {
    "whisper": {"batch_size": 2, "optlevel": "1"},
    "moonshine": {"batch_size": 2, "audio_sequence_length": list(SAMPLES), "optlevel": "1"},
}
"""Small static shapes, and no C++ compiler."""

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
GENERATION: dict[str, Any] = {
    "max_length": TARGET,
    "suppress_tokens": [5, 6],
    "begin_suppress_tokens": [7, 2],
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 51, "<|de|>": 52},
    "task_to_id": {"translate": 53, "transcribe": 54},
    "prev_sot_token_id": 55,
    "no_timestamps_token_id": 59,
    "max_initial_timestamp_index": 10,
    "return_timestamps": False,
    "alignment_heads": [[0, 0]],
}
"""Whisper's: ids 60 and above are timestamps."""


def save_tiny_speech(folder: Path, model_type: str, *, seed: int = 0, spread: float = 1.5, **generation: Any) -> Path:
    """Write a random checkpoint; a larger spread of its logits makes tokens and rounding errors differ more."""
    from transformers import CONFIG_MAPPING, AutoModelForSpeechSeq2Seq, GenerationConfig

    model = AutoModelForSpeechSeq2Seq.from_config(CONFIG_MAPPING[model_type](**TINY[model_type]))
    spread_logits(model, seed=seed, factor=spread)
    if model_type == "whisper":
        special = {name: getattr(model.config, name) for name in _SPECIAL}
        model.generation_config = GenerationConfig(**special, **{**GENERATION, **generation})
    model.save_pretrained(folder)
    return folder


def sounds(model_type: str, rows: int, length: int | None = None) -> dict[str, Any]:
    """Random sounds; of several recordings the last one is shorter."""
    import torch

    generator = torch.Generator().manual_seed(rows)
    if model_type == "whisper":
        return {"input_features": torch.randn(rows, MELS, length or FRAMES, generator=generator)}
    length = length or 4000
    mask = torch.ones(rows, length, dtype=torch.int64)
    if rows > 1:
        mask[-1, length // 2 :] = 0
    return {"input_values": torch.randn(rows, length, generator=generator) * mask, "attention_mask": mask}
