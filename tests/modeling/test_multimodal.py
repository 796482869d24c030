"""Audio-language models generate the tokens of transformers; inputs that do not fit the graphs are errors."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForMultimodalLM

from optimum_neuron import NeuronModelForMultimodalLM, main_export, pipeline
from optimum_neuron.errors import ConfigError, ModelError, ShapeError, ValidationError
from optimum_neuron.kinds.multimodal.audio import IMPLEMENTED, NeuronAudioTextConfig
from optimum_neuron.sources import find_task, infer_task, tasks_of
from tests.audio_text import (
    AUDIO_TOKEN_ID,
    BINS,
    FRAMES,
    SHAPES,
    TINY,
    TOKENS,
    processed,
    save_tiny_audio_text,
    tiny_processor,
)
from tests.modeling.common import both
from tests.raising import raises

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "no_repeat_ngram_size": 1}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return a function that makes the compiled model and the original of an architecture, once each."""
    root = tmp_path_factory.mktemp("audio_text")

    def make(name: str, family: str | None = None) -> tuple[Any, Any]:
        folder = save_tiny_audio_text(root / f"{name}-{family}", name)
        original = AutoModelForMultimodalLM.from_pretrained(folder, dtype=torch.float32).eval()
        return NeuronModelForMultimodalLM.from_pretrained(folder, export=True, family=family, **SHAPES), original

    return functools.cache(make)


@pytest.fixture(params=TINY)
def name(request):
    return request.param


@pytest.mark.full(days=6)
@pytest.mark.parametrize("frames", [[[FRAMES]], [[FRAMES, 29], [], [18]], [[], []]], ids=["one", "several", "none"])
def test_greedy_matches_transformers(name, frames, pairs):
    result, expected = both(pairs(name), processed(name, frames), **GREEDY)
    assert result == expected
    assert any("with 2 audios" in error.output for error in pairs(name)[0].prepared.validation)


@pytest.mark.full(days=4)
def test_generic_decoders_match_too(pairs):
    compiled, original = pairs("qwen2_audio", "generic")
    result, expected = both((compiled, original), processed("qwen2_audio", [[FRAMES, 29], [], [18]]), **GREEDY)
    assert result == expected and compiled.prepared.family == "generic"
    assert pairs("qwen2_audio")[0].prepared.family == "qwen2"


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"use_cache": False}], ids=["beams", "without_cache"])
def test_ways_to_generate(name, options, pairs):
    # transformers repeats each audio for beams, so a row with two would have the first one twice.
    result, expected = both(pairs(name), processed(name, [[FRAMES]]), **GREEDY | options)
    assert result == expected


def test_beams_of_rows_with_several_audios(name, pairs):
    compiled, _ = pairs(name)
    inputs = processed(name, [[FRAMES, 21], [37]])  # the first row is the longest, so it has no padding
    alone = {key: value[: 2 if "feature" in key else 1] for key, value in inputs.items()}
    result = compiled.generate(**inputs, num_beams=2, **GREEDY)[0]
    assert torch.equal(result, compiled.generate(**alone, num_beams=2, num_return_sequences=2, **GREEDY)[0])
    swapped = alone | {"input_features": -alone["input_features"]}
    assert not torch.equal(result, compiled.generate(**swapped, num_beams=2, **GREEDY)[0])


def test_logits_and_loss_match_and_depend_on_audio(name, pairs):
    compiled, original = pairs(name)
    inputs = processed(name, [[FRAMES, 29], [18]], padding_side="right")
    real = inputs["attention_mask"].bool()
    labels = inputs["input_ids"].masked_fill(~real, -100)
    with torch.no_grad():
        expected = original(**inputs, labels=labels)
    actual = compiled(**inputs, labels=labels)
    assert type(actual) is type(expected)
    torch.testing.assert_close(actual.logits[real], expected.logits[real], atol=1e-4, rtol=0)
    torch.testing.assert_close(actual.loss, expected.loss, atol=1e-4, rtol=0)
    other = compiled(**inputs | {"input_features": -inputs["input_features"]}).logits
    assert (other - actual.logits)[0, -1].abs().max() > 1e-3


def test_export_folder_and_task(name, pairs, tmp_path):
    compiled, _ = pairs(name)
    compiled.save_pretrained(tmp_path)
    loaded = NeuronModelForMultimodalLM.from_pretrained(tmp_path)
    inputs = processed(name, [[FRAMES], [21]])
    assert torch.equal(loaded.generate(**inputs, **GREEDY), compiled.generate(**inputs, **GREEDY))
    assert infer_task(compiled.config).value == compiled.neuron_config.task == "any-to-any"
    assert isinstance(loaded.neuron_config, NeuronAudioTextConfig) and loaded.max_num_audios == 3


def test_pipeline_matches_transformers(pairs):
    compiled, original = pairs("qwen2_audio")
    processor, options = tiny_processor(), {"max_new_tokens": 6, "return_full_text": False}
    inputs = {"text": ["a<|AUDIO|>b", "c<|AUDIO|>"], "audio": [np.sin(np.arange(size) / 5) for size in (15000, 7000)]}
    chat, expected = (
        pipeline("any-to-any", compiled, processor=processor, **options),
        transformers.pipeline("any-to-any", original, processor=processor, **options),
    )
    assert chat(**inputs) == expected(**inputs)


def test_image_models_keep_their_task():
    assert "any-to-any" not in tasks_of("llava")
    assert find_task("any-to-any", "voxtral").kind == "audio_text"


LONG = {
    "input_features": torch.zeros(1, BINS, FRAMES + 2),
    "feature_attention_mask": torch.ones(1, FRAMES + 2, dtype=torch.int64),
}


@pytest.mark.parametrize(
    ("changes", "error", "details"),
    [
        (LONG, ShapeError, {"axis": "num_frames", "size": FRAMES + 2}),
        ({"input_features": torch.zeros(BINS, FRAMES)}, ShapeError, {}),
        ({"input_features": torch.zeros(2, BINS, FRAMES)}, ShapeError, {}),
        ({"input_features": None, "feature_attention_mask": None}, ShapeError, {}),
        ({"input_ids": torch.full((1, 5), 60), "attention_mask": None}, ShapeError, {}),
        ({"input_ids": torch.full((1, 40), AUDIO_TOKEN_ID), "attention_mask": None}, ShapeError, {"max_num_audios": 3}),
        ({"mm_encoder_outputs": {"image": None}}, ConfigError, {"keys": ["image"]}),
        ({"output_attentions": True}, ConfigError, {}),
    ],
    ids=["long", "rank", "more", "missing", "no_tokens", "crowded", "image", "attentions"],
)
def test_misfit_inputs(name, changes, error, details, pairs):
    compiled, _ = pairs(name)
    inputs = processed(name, [[FRAMES]]) | changes
    if name == "voxtral":
        inputs.pop("feature_attention_mask", None)
    with raises(error, **details):
        compiled(**inputs)


def test_mask_is_for_architectures_with_padding(pairs):
    compiled, _ = pairs("voxtral")
    mask = torch.ones(1, FRAMES, dtype=torch.int64)
    with raises(ConfigError, arguments=["feature_attention_mask"]):
        compiled(**processed("voxtral", [[FRAMES]]), feature_attention_mask=mask)
    compiled, _ = pairs("qwen2_audio")
    inputs = processed("qwen2_audio", [[FRAMES]])
    with raises(ConfigError, arguments=["feature_attention_mask"]):
        compiled(**inputs | {"input_features": None})
    with raises(ConfigError, arguments=["input_features", "mm_encoder_outputs"]):
        compiled(**inputs, mm_encoder_outputs={"audio": compiled.get_audio_features(inputs["input_features"])})


@pytest.mark.parametrize(
    ("options", "error", "details"),
    [
        ({"max_num_audios": 6}, ConfigError, {"option": "max_num_audios", "sequence_length": 73}),
        ({"continuous_batching": True, "prefill_buckets": None}, ConfigError, {"option": "continuous_batching"}),
        ({"task": "image-text-to-text"}, ModelError, {"tasks": tasks_of("qwen2_audio")}),
    ],
    ids=["audios", "batching", "task"],
)
def test_misfit_exports(options, error, details, tmp_path):
    folder = save_tiny_audio_text(tmp_path / "tiny", "qwen2_audio")
    with raises(error, **details):
        main_export(folder, tmp_path / "out", **SHAPES | options)
    assert TOKENS["qwen2_audio"] * 6 + 1 == 73


def test_encoder_that_reads_padding_is_found(tmp_path, monkeypatch):
    """The reference model masks padding itself, so a mask of ours that is wrong shows."""
    row = IMPLEMENTED["qwen2_audio"]

    def without_mask(model, features, mask):
        return row.features(model, features, torch.ones_like(mask))

    monkeypatch.setitem(IMPLEMENTED, "qwen2_audio", dataclasses.replace(row, features=without_mask))
    folder = save_tiny_audio_text(tmp_path / "tiny", "qwen2_audio")
    with raises(ValidationError, scenario="shorter audio"):
        main_export(folder, tmp_path / "out", disable_neuron_cache=True, **SHAPES)
