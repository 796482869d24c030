"""transformers' own pipeline and ours transcribe with compiled models as with the originals, and warn of nothing."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import transformers
from transformers import AutoModelForSpeechSeq2Seq
from transformers.utils import is_torchaudio_available

from optimum_neuron import NeuronModelForSpeechSeq2Seq, pipeline
from optimum_neuron.errors import ConfigError
from tests.processors import WINDOW_S, save_speech_processors
from tests.raising import raises
from tests.speech import SHAPES, save_tiny_speech

TASK = "automatic-speech-recognition"
RATE = 16_000

OPTIONS = {"max_new_tokens": 8, "num_beams": 1}


def recording(seconds: float) -> dict[str, Any]:
    samples = np.random.RandomState(0).randn(int(seconds * RATE)).astype("float32")
    return {"raw": samples, "sampling_rate": RATE}


@pytest.fixture(scope="module", params=SHAPES)
def folder(request, tmp_path_factory):
    folder = save_tiny_speech(tmp_path_factory.mktemp("speech") / request.param, request.param, is_multilingual=False)
    save_speech_processors(folder, request.param)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    model_type = folder.name
    return NeuronModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **SHAPES[model_type])


def parts(folder):
    names = {"tokenizer": transformers.AutoTokenizer, "feature_extractor": transformers.AutoFeatureExtractor}
    return {name: kind.from_pretrained(folder) for name, kind in names.items()}


@pytest.mark.full(days=2)
def test_transcript_matches_reference_without_warnings(folder, model, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    with caplog.at_level(logging.WARNING):
        compiled_pipe = transformers.pipeline(TASK, model=model, **parts(folder))
    assert not caplog.records
    original = AutoModelForSpeechSeq2Seq.from_pretrained(folder).eval()
    reference_pipe = transformers.pipeline(TASK, model=original, **parts(folder))
    calls = [(recording(0.3), OPTIONS), ([recording(0.2), recording(0.3)], {**OPTIONS, "num_beams": 2})]
    if folder.name == "whisper":
        chunks = {"chunk_length_s": WINDOW_S, "stride_length_s": 0.2, "ignore_warning": True}
        calls += [
            (recording(0.3), {**OPTIONS, "return_timestamps": True}),
            (recording(2.5), {**OPTIONS, **chunks}),
            (recording(2.5), {**OPTIONS, **chunks, "return_timestamps": True, "batch_size": 2}),
            (recording(2.5), {**OPTIONS, "return_timestamps": True}),
        ]
    for sound, options in calls:
        assert compiled_pipe(copied(sound), **options) == reference_pipe(copied(sound), **options)


def copied(sound: Any) -> Any:
    """transformers removes the keys from its arguments."""
    return [dict(one) for one in sound] if isinstance(sound, list) else dict(sound)


def test_pipeline_finds_everything_in_folder(folder, model):
    compiled_pipe = pipeline(TASK, folder, export=True, **SHAPES[folder.name])
    assert type(compiled_pipe.model) is type(model)
    reference_pipe = transformers.pipeline(TASK, model=model, **parts(folder))
    assert compiled_pipe(recording(0.3), **OPTIONS) == reference_pipe(recording(0.3), **OPTIONS)


@pytest.mark.parametrize("key", ["raw", "array"])
def test_recording_of_another_rate_is_refused(folder, model, key):
    """If torchaudio is installed, transformers resamples."""
    if is_torchaudio_available():
        pytest.skip("torchaudio is installed")
    compiled_pipe = pipeline(TASK, model, **parts(folder))
    sound = {key: recording(0.3)["raw"], "sampling_rate": 8000}
    for sounds in (sound, [recording(0.3), dict(sound)]):
        with raises(ConfigError, sampling_rate=8000, expected=16000):
            compiled_pipe(sounds, **OPTIONS)


def test_times_of_words(folder, model):
    if folder.name != "whisper":
        pytest.skip("other models have no timestamps")
    compiled_pipe = pipeline(TASK, model, **parts(folder))
    with raises(ConfigError, option="return_token_timestamps"):
        compiled_pipe(recording(0.3), return_timestamps="word", **OPTIONS)
    compiled_pipe = pipeline(TASK, folder, export=True, output_attentions=True, **SHAPES["whisper"])
    original = AutoModelForSpeechSeq2Seq.from_pretrained(folder, attn_implementation="eager").eval()
    reference_pipe = transformers.pipeline(TASK, model=original, **parts(folder))
    for seconds in (0.7, 2.5):
        actual = compiled_pipe(recording(seconds), return_timestamps="word", **OPTIONS)
        assert actual == reference_pipe(recording(seconds), return_timestamps="word", **OPTIONS)
        assert len({chunk["timestamp"] for chunk in actual["chunks"]}) > 1
