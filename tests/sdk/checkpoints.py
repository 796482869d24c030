"""Checkpoints of the scripts in `scripts/`: tiny, random, and made when a script names them.

A script names a checkpoint as on the Hub, "acme/bert-ner"; it runs in a folder that has it under this path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.encoders import save_letters, save_tiny_encoder
from tests.image_text import save_tiny_image_text
from tests.processors import save_encoder_processors, save_speech_processors
from tests.seq2seq import save_tiny_seq2seq
from tests.speech import save_tiny_speech
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

LONGEST = 128
"""Tokens of a text: scripts compile for this length, and for half of it."""

_LABELS = {"id2label": {0: "NEGATIVE", 1: "NEUTRAL", 2: "POSITIVE"}, "label2id": {"NEGATIVE": 0}}


def _encoder(model_type: str, task: str, pipeline: str, **options: Any) -> Callable[[Path], Path]:
    return lambda folder: save_encoder_processors(save_tiny_encoder(folder, model_type, task, **options), pipeline)


def _text(model_type: str, task: str, **options: Any) -> Callable[[Path], Path]:
    return _encoder(model_type, task, task, max_position_embeddings=LONGEST, **options)


def _decoder(model_type: str, **options: Any) -> Callable[[Path], Path]:
    return lambda folder: save_tokenizer(
        save_tiny(folder, model_type, vocab_size=NUM_BYTE_TOKENS, max_position_embeddings=LONGEST, **options)
    )


def _text_to_text(model_type: str, **options: Any) -> Callable[[Path], Path]:
    return lambda folder: save_letters(save_tiny_seq2seq(folder, model_type, **options))


def _sentences(folder: Path) -> Path:
    _text("bert", "feature-extraction")(folder)
    kinds = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling"), ("2", "2_Normalize", "Normalize")]
    modules = [{"idx": int(n), "name": n, "path": p, "type": f"sentence_transformers.models.{t}"} for n, p, t in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


def _whisper(folder: Path) -> Path:
    save_speech_processors(save_tiny_speech(folder, "whisper", is_multilingual=False), "whisper")
    return folder


CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "acme/bert": _text("bert", "feature-extraction"),
    "acme/bert-masked": _text("bert", "fill-mask"),
    "acme/bert-ner": _text("bert", "token-classification"),
    "acme/bert-squad": _text("bert", "question-answering"),
    "acme/bert-swag": _text("bert", "multiple-choice"),
    "acme/bert-sentiment": _text("bert", "text-classification", **_LABELS),
    "acme/bert-sentiment-tuned": _text("bert", "text-classification", seed=1, **_LABELS),
    "acme/minilm": _sentences,
    "acme/vit": _encoder("vit", "image-classification", "image-classification"),
    "acme/segformer": _encoder("segformer", "semantic-segmentation", "image-segmentation"),
    "acme/yolos": _encoder("yolos", "object-detection", "object-detection"),
    "acme/clip": _encoder("clip", "zero-shot-image-classification", "zero-shot-image-classification"),
    "acme/hubert-keywords": _encoder("hubert", "audio-classification", "audio-classification"),
    "acme/wav2vec2-ctc": _encoder("wav2vec2", "automatic-speech-recognition", "automatic-speech-recognition"),
    "acme/wavlm-diarization": _encoder("wavlm", "audio-frame-classification", "audio-classification"),
    "acme/wavlm-speakers": _encoder("wavlm", "audio-xvector", "audio-classification"),
    "acme/llama": _decoder("llama"),
    "acme/qwen3": _decoder("qwen3"),
    "acme/t5": _text_to_text("t5"),
    "acme/bart": _text_to_text("bart", max_position_embeddings=LONGEST),
    "acme/whisper": _whisper,
    "acme/smolvlm": lambda folder: save_tiny_image_text(folder, "smolvlm"),
}
"""Name to the function that writes it into a folder."""


def write_named(text: str, home: Path) -> None:
    """Write every checkpoint that a text names into a folder, unless it is there."""
    for name in set(re.findall(r"acme/[\w-]+", text)) & CHECKPOINTS.keys():
        if not (home / name).exists():
            CHECKPOINTS[name](home / name)
