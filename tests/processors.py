"""Processors of the tiny models: image processors, feature extractors, and tokenizers of speech models.

Nothing is downloaded. Text models have the tokenizers of `tests/encoders.py` and `tests/tiny.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.encoders import IMAGE, save_letters
from tests.speech import GENERATION, MELS, VOCABULARY

WINDOW_S = 1
"""Of the tiny Whisper: 100 frames of 160 samples."""

_IMAGE_PROCESSORS = {
    "image-classification": "ViT",
    "image-feature-extraction": "ViT",
    "zero-shot-image-classification": "ViT",
    "depth-estimation": "DPT",
    "image-segmentation": "Segformer",
    "object-detection": "Yolos",
}


def reads_text(pipeline: str) -> bool:
    """Say whether a pipeline of encoders needs a tokenizer."""
    return not pipeline.startswith(("image", "depth", "object", "audio", "automatic"))


def save_encoder_processors(folder: Path, pipeline: str) -> Path:
    """Write the processors that the pipeline of an encoder needs besides its model."""
    import transformers

    size = dict.fromkeys(("height", "width"), 64 if pipeline == "image-segmentation" else IMAGE)
    if pipeline in _IMAGE_PROCESSORS:
        getattr(transformers, f"{_IMAGE_PROCESSORS[pipeline]}ImageProcessorPil")(size=size).save_pretrained(folder)
    elif pipeline == "audio-classification":
        transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    elif pipeline == "automatic-speech-recognition":
        transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
        letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefghijklmnopqrs"]
        (folder / "letters.json").write_text(json.dumps({letter: index for index, letter in enumerate(letters)}))
        transformers.Wav2Vec2CTCTokenizer(str(folder / "letters.json")).save_pretrained(folder)
    return save_letters(folder) if reads_text(pipeline) else folder


def save_speech_processors(folder: Path, model_type: str) -> Path:
    """Write a tokenizer of words, and the feature extractor of the architecture."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>"]
    words = [f"w{number}" for number in range(GENERATION["no_timestamps_token_id"] + 1)]
    words[0:3], words[50:56] = ["<s>", "<pad>", "</s>"], special
    words[GENERATION["no_timestamps_token_id"]] = "<|notimestamps|>"
    words += [f"<|{0.02 * number:.2f}|>" for number in range(VOCABULARY - len(words))]
    tokenizer = Tokenizer(models.WordLevel(dict(zip(words, range(len(words)), strict=True)), unk_token="w9"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokens = {"unk_token": "w9", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    fast.save_pretrained(folder)
    if model_type == "whisper":
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "tokenizer_class": "WhisperTokenizer"}))
        transformers.WhisperFeatureExtractor(MELS, chunk_length=WINDOW_S).save_pretrained(folder)
    else:
        transformers.Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return folder
