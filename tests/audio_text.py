"""Tiny random models of audio and text, one for each architecture, made from configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.encoders import randomize

LENGTH, MAX_AUDIOS, BINS, FRAMES, VOCABULARY, AUDIO_TOKEN_ID = 64, 3, 8, 48, 96, 3
TOKENS = {"qwen2_audio": 12, "voxtral": 6}
"""Tokens of an audio of full length: states are averaged in pairs, or joined in fours."""

SHAPES: dict[str, Any] = {
    "batch_size": 2,
    "sequence_length": LENGTH,
    "prefill_buckets": (8, LENGTH),
    "decode_buckets": (LENGTH,),
    "extend_length": 1,
    "max_num_audios": MAX_AUDIOS,
    "torch_dtype": "float32",
    "optlevel": "1",
}
"""Small static shapes, and no C++ compiler; the first bucket holds no audio of full length."""

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LENGTH,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_AUDIO = {"num_mel_bins": BINS, "max_source_positions": FRAMES // 2}

TINY: dict[str, dict[str, Any]] = {
    "qwen2_audio": {
        "text_config": {"model_type": "qwen2", **_TEXT},
        "audio_config": _AUDIO
        | {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24},
        "audio_token_index": AUDIO_TOKEN_ID,
    },
    "voxtral": {
        "text_config": {"model_type": "llama", "head_dim": 8, **_TEXT},
        "audio_config": _AUDIO
        | {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
        "audio_token_id": AUDIO_TOKEN_ID,
    },
}
"""Model type to the options of its configuration."""


def save_tiny_audio_text(folder: Path, model_type: str, *, seed: int = 0) -> Path:
    """Write a random checkpoint whose logits are spread."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForMultimodalLM

    model = AutoModelForMultimodalLM.from_config(CONFIG_MAPPING[model_type](**TINY[model_type]))
    randomize(model, seed=seed)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.mul_(3.0 if "projector" in path else 1.0)  # audio must change the generated text
    model.save_pretrained(folder)
    return folder


def processed(model_type: str, frames: list[list[int]], *, padding_side: str = "left", seed: int = 0) -> dict[str, Any]:
    """What a processor makes of prompts with audios of so many frames each; Voxtral's have the full length."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    flat = [length if model_type == "qwen2_audio" else FRAMES for row in frames for length in row]
    rows, lengths = [], iter(flat)
    for row in frames:
        words = torch.randint(50, VOCABULARY, (len(row) + 2,), generator=generator).tolist()
        tokens = words[:2]
        for word, _ in zip(words[2:], row, strict=True):
            frames_of_one = next(lengths)
            count = ((frames_of_one - 1) // 2 - 1) // 2 + 1 if model_type == "qwen2_audio" else TOKENS[model_type]
            tokens += [AUDIO_TOKEN_ID] * count + [word]
        rows.append(tokens)
    width, is_left = max(map(len, rows)), padding_side == "left"

    def padded(row: list[int], fill: list[int]) -> list[int]:
        return fill + row if is_left else row + fill

    inputs = {
        "input_ids": torch.tensor([padded(row, [0] * (width - len(row))) for row in rows]),
        "attention_mask": torch.tensor([padded([1] * len(row), [0] * (width - len(row))) for row in rows]),
    }
    if flat:
        inputs["input_features"] = torch.randn(len(flat), BINS, FRAMES, generator=generator)
        if model_type == "qwen2_audio":
            inputs["feature_attention_mask"] = (torch.arange(FRAMES) < torch.tensor(flat)[:, None]).long()
    return inputs


def tiny_processor() -> Any:
    """A processor of Qwen2-Audio: a token for each byte, and spectrograms of a second."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast, Qwen2AudioProcessor, WhisperFeatureExtractor

    special = ["<pad>", "<s>", "</s>", "<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>"]
    vocab = {token: index for index, token in enumerate([*special, *map(chr, range(33, 33 + VOCABULARY - 6))])}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", additional_special_tokens=special[3:]
    )
    fast.padding_side = "left"
    sounds = WhisperFeatureExtractor(
        feature_size=BINS, sampling_rate=16000, hop_length=333, chunk_length=1, return_attention_mask=True
    )
    return Qwen2AudioProcessor(sounds, fast, chat_template="{{ messages }}")
