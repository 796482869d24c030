"""Whisper as faster-whisper's packages carry it: CTranslate2's `model.bin`, its `config.json`, and `tokenizer.json`.

CTranslate2 joins projections that read the same states: query, key and value of self-attention, key and value of
cross-attention. Keys have no bias in Whisper, so theirs is zero there. Weights are kept in float32, which represents
the file's float16 exactly and is the dtype of the original checkpoints.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError
from .common import save
from .ctranslate2 import read_variables

if TYPE_CHECKING:
    import torch
    from transformers import WhisperConfig

    Tensors = Mapping[str, torch.Tensor]

_MULTILINGUAL_VOCABULARY = 51_865
"""Vocabularies of this size and above know languages (openai/whisper, model.py, `is_multilingual`)."""

_MAX_INITIAL_TIMESTAMP_INDEX = 50
"""A first timestamp is at most one second, of 0.02 s each (openai/whisper, decoding.py, `max_initial_timestamp`)."""

_NORMS = {"weight": "gamma", "bias": "beta"}
_KINDS = ("weight", "bias")
_MODULES = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_2": "encoder_attn.out_proj",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
"""Variables of a layer to modules of transformers; those that are joined are taken apart by `_joined`."""


def convert(source: Path, destination: Path) -> None:
    """Write model, generation configuration, feature extractor and tokenizer."""
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    variables = read_variables(source / "model.bin")
    stated = json.loads((source / "config.json").read_text("utf-8"))
    tokens = _special_tokens(source / "tokenizer.json")
    config = _config(variables, tokens)
    model = WhisperForConditionalGeneration(config)
    model.generation_config = _generation_config(config, stated, tokens)
    save(model, {name: tensor.float() for name, tensor in _tensors(variables, config)}, destination)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins).save_pretrained(destination)
    _save_tokenizer(source, destination, config)


def _special_tokens(path: Path) -> dict[str, int]:
    """IDs of the tokens in angle brackets, by their text."""
    added = json.loads(path.read_text("utf-8"))["added_tokens"]
    return {token["content"].strip("<|>"): token["id"] for token in added}


def _config(variables: Tensors, tokens: Mapping[str, int]) -> WhisperConfig:
    """Every size as the shapes of the tensors tell it."""
    from transformers import WhisperConfig

    def layers(side: str) -> int:
        return len({name.split("/")[1] for name in variables if name.startswith(f"{side}/layer_")} - {"layer_norm"})

    vocabulary, width = variables["decoder/embeddings/weight"].shape
    end = tokens["endoftext"]
    sizes: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        sizes[f"{side}_layers"] = layers(side)
        sizes[f"{side}_attention_heads"] = int(variables[f"{side}/num_heads"])
        sizes[f"{side}_ffn_dim"] = variables[f"{side}/layer_0/ffn/linear_0/weight"].shape[0]
    return WhisperConfig(
        vocab_size=vocabulary,
        d_model=width,
        num_mel_bins=variables["encoder/conv1/weight"].shape[1],
        max_source_positions=variables["encoder/position_encodings/encodings"].shape[0],
        max_target_positions=variables["decoder/position_encodings/encodings"].shape[0],
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=tokens["startoftranscript"],
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **sizes,
    )


def _generation_config(config: WhisperConfig, stated: Mapping[str, Any], tokens: Mapping[str, int]) -> Any:
    from transformers import GenerationConfig

    is_multilingual = config.vocab_size >= _MULTILINGUAL_VOCABULARY
    languages = {f"<|{name}|>": number for name, number in tokens.items() if number in stated["lang_ids"]}
    tasks = {name: tokens[name] for name in ("transcribe", "translate") if name in tokens}
    return GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        max_length=config.max_target_positions,
        suppress_tokens=stated["suppress_ids"],
        begin_suppress_tokens=stated["suppress_ids_begin"],
        alignment_heads=stated["alignment_heads"],
        is_multilingual=is_multilingual,
        no_timestamps_token_id=tokens["notimestamps"],
        prev_sot_token_id=tokens["startofprev"],
        max_initial_timestamp_index=_MAX_INITIAL_TIMESTAMP_INDEX,
        return_timestamps=False,
        **({"lang_to_id": languages, "task_to_id": tasks} if is_multilingual else {}),
    )


def _save_tokenizer(source: Path, destination: Path, config: WhisperConfig) -> None:
    end = "<|endoftext|>"
    shutil.copyfile(source / "tokenizer.json", destination / "tokenizer.json")
    options = {
        "tokenizer_class": "WhisperTokenizer",
        **dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), end),
        "add_prefix_space": False,
        "errors": "replace",
        "model_max_length": config.max_target_positions,
    }
    (destination / "tokenizer_config.json").write_text(json.dumps(options, indent=2) + "\n", "utf-8")


def _tensors(variables: Tensors, config: WhisperConfig) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter of transformers' model."""
    for conv in ("conv1", "conv2"):
        yield from _module(variables, f"encoder/{conv}", f"model.encoder.{conv}")
    yield "model.decoder.embed_tokens.weight", variables["decoder/embeddings/weight"]
    for side, num_layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        yield f"model.{side}.embed_positions.weight", variables[f"{side}/position_encodings/encodings"]
        yield from _module(variables, f"{side}/layer_norm", f"model.{side}.layer_norm")
        for layer in range(num_layers):
            yield from _layer(variables, f"{side}/layer_{layer}", f"model.{side}.layers.{layer}", side == "decoder")


def _layer(variables: Tensors, theirs: str, ours: str, has_cross_attention: bool) -> Iterator[tuple[str, torch.Tensor]]:
    for part, module in _MODULES.items():
        if has_cross_attention or not part.startswith("attention/"):
            yield from _module(variables, f"{theirs}/{part}", f"{ours}.{module}")
    yield from _joined(variables, f"{theirs}/self_attention/linear_0", f"{ours}.self_attn", "qkv")
    if has_cross_attention:
        yield from _joined(variables, f"{theirs}/attention/linear_1", f"{ours}.encoder_attn", "kv")


def _module(variables: Tensors, theirs: str, ours: str) -> Iterator[tuple[str, torch.Tensor]]:
    names = _NORMS if theirs.endswith("layer_norm") else dict(zip(_KINDS, _KINDS, strict=True))
    for kind, name in names.items():
        yield f"{ours}.{kind}", variables[f"{theirs}/{name}"]


def _joined(variables: Tensors, theirs: str, ours: str, letters: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Projections that are joined along their rows."""
    for kind in _KINDS:
        parts = variables[f"{theirs}/{kind}"].chunk(len(letters))
        for letter, part in zip(letters, parts, strict=True):
            if (letter, kind) != ("k", "bias"):
                yield f"{ours}.{letter}_proj.{kind}", part
            elif part.any():
                message = f"The keys of {theirs} have a bias, but Whisper's have none."
                raise ModelError(message, hint="Use a file that was converted from Whisper.", tensor=theirs)
