"""Speech models generate the tokens of transformers; inputs that do not fit the compiled graphs are errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from transformers import AutoModelForSpeechSeq2Seq, set_seed

from optimum_neuron import NeuronModelForCTC, NeuronModelForSpeechSeq2Seq, NeuronWhisperForConditionalGeneration
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from optimum_neuron.options.peer_attributes import upstream_rules
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.raising import raises
from tests.speech import FRAMES, MELS, SHAPES, TARGET, TINY, VOCABULARY, save_tiny_speech, sounds

KNOWN = {"language": "en", "task": "transcribe"}
"""Nothing is left for Whisper to detect."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Compiled models and the originals."""
    created = {}
    for model_type in TINY:
        folder = save_tiny_speech(tmp_path_factory.mktemp("speech") / model_type, model_type)
        model = NeuronModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **SHAPES[model_type])
        created[model_type] = model, AutoModelForSpeechSeq2Seq.from_pretrained(folder, dtype=torch.float32).eval()
    return created


@pytest.fixture(params=TINY)
def pair(request, pairs):
    return pairs[request.param]


@pytest.fixture
def whisper(pairs):
    return pairs["whisper"]


def generated(model: Any, inputs: dict[str, torch.Tensor], **options: Any) -> list[Any]:
    """Tokens of each row, without the padding behind the end; the original reads recordings one by one.

    In a batch it would mix padding into the shorter ones.
    """
    set_seed(0)
    if "input_values" not in inputs or isinstance(model, NeuronModelForSpeechSeq2Seq):
        return model.generate(**inputs, **options).tolist()
    rows = []
    for values, mask in zip(inputs["input_values"], inputs["attention_mask"], strict=True):
        length = int(mask.sum())
        rows += model.generate(values[None, :length], attention_mask=mask[None, :length], **options).tolist()
    return rows


def both(pair: Any, inputs: dict[str, torch.Tensor], **options: Any) -> None:
    """Generate with both, from the same seed, and compare."""
    result, expected = (generated(runner, inputs, **options) for runner in pair)
    assert result == expected
    assert len({token for row in result for token in row}) > 2, "the tokens must be able to differ"


def typed(pair: Any) -> str:
    return pair[0].config.model_type


@pytest.mark.parametrize("rows", [1, 2, 5], ids="{}_rows".format)
def test_greedy_matches_transformers(pair, rows):
    options = KNOWN if typed(pair) == "whisper" else {}
    both(pair, sounds(typed(pair), rows), eos_token_id=-1, no_repeat_ngram_size=1, max_new_tokens=12, **options)


def test_beams_match_transformers(pair):
    options = KNOWN if typed(pair) == "whisper" else {}
    both(pair, sounds(typed(pair), 2), num_beams=3, no_repeat_ngram_size=1, max_new_tokens=8, **options)


def test_sampling_matches_transformers(pair):
    """One row: of several the original of recordings draws one row after the other."""
    options = {"temperature": 0.7, **KNOWN} if typed(pair) == "whisper" else {"do_sample": True, "top_k": 10}
    both(pair, sounds(typed(pair), 1), max_new_tokens=12, **options)


def test_each_architecture_has_its_class(pairs):
    assert type(pairs["whisper"][0]) is NeuronWhisperForConditionalGeneration
    assert type(pairs["moonshine"][0]) is NeuronModelForSpeechSeq2Seq
    shapes = {"batch_size": 2, "nb_max_frames": FRAMES, "decoder_sequence_length": TARGET}
    assert pairs["whisper"][0].input_static_shapes == shapes


@pytest.mark.parametrize("length", [2999, 3000, 3001, 6000], ids="{}_samples".format)
def test_recordings_around_bucket(pairs, length):
    both(pairs["moonshine"], sounds("moonshine", 2, length), eos_token_id=-1, max_new_tokens=10, no_repeat_ngram_size=1)


def test_padding_changes_nothing(pairs):
    """Each row of a padded batch has the hidden states and logits that the original gives for it alone."""
    model, original = pairs["moonshine"]
    inputs, start = sounds("moonshine", 3), torch.full((3, 1), 50)
    actual = model(**inputs, decoder_input_ids=start)
    for row, mask in enumerate(inputs["attention_mask"]):
        alone = inputs["input_values"][row : row + 1, : int(mask.sum())]
        with torch.no_grad():
            expected = original(alone, decoder_input_ids=start[:1])
        hidden = expected.encoder_last_hidden_state[0]
        assert torch.allclose(actual.encoder_last_hidden_state[row, : len(hidden)], hidden, atol=1e-4)
        assert torch.allclose(actual.logits[row], expected.logits[0], atol=1e-4)


# Result of Whisper's own generate.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"language": "de"},
        {"language": ["en", "de", "en"], "task": "translate"},
        {"return_timestamps": True, **KNOWN},
        {"prompt_ids": torch.tensor([55, 20, 21, 22]), **KNOWN},
        {"temperature": (0.0, 0.4), "logprob_threshold": -0.5, "compression_ratio_threshold": 1.2, **KNOWN},
        {"no_speech_threshold": 0.2, "logprob_threshold": -0.5, "temperature": 0.0, **KNOWN},
        {"num_beams": 2, "num_return_sequences": 2, **KNOWN},
        {"use_cache": False, **KNOWN},
    ],
    ids=lambda options: "+".join(options) or "language detected",
)
def test_options_of_whisper(whisper, options):
    both(whisper, sounds("whisper", 3), max_new_tokens=10, **options)


@pytest.mark.parametrize("condition", [False, True], ids=["each alone", "on what was said before"])
def test_recordings_longer_than_window(whisper, condition):
    """Rows of different lengths, window by window; prompts with previous text are padded on the left."""
    features = sounds("whisper", 2, 3 * FRAMES)["input_features"]
    mask = torch.ones(2, 3 * FRAMES, dtype=torch.int64)
    mask[1, 2 * FRAMES :] = 0
    options = {"return_timestamps": True, "condition_on_prev_tokens": condition, "max_new_tokens": 6, **KNOWN}
    both(whisper, {"input_features": features, "attention_mask": mask}, **options)


def test_scores_and_segments_of_whisper(whisper):
    model, original = whisper
    inputs = sounds("whisper", 2)
    options = {"return_dict_in_generate": True, "output_scores": True, "max_new_tokens": 6, **KNOWN}
    result, expected = (runner.generate(**inputs, **options) for runner in (model, original))
    assert torch.equal(result.sequences, expected.sequences)
    for actual, reference in zip(result.scores, expected.scores, strict=True):
        assert torch.allclose(actual, reference, atol=1e-4)
    options = {"return_segments": True, "return_timestamps": True, **KNOWN}
    result, expected = (runner.generate(**inputs, **options)["segments"] for runner in (model, original))
    assert [[float(s["end"]) for s in row] for row in result] == [[float(s["end"]) for s in row] for row in expected]


# Times of words, which are read from the weights of cross-attention.


@pytest.fixture(scope="module")
def with_weights(tmp_path_factory):
    """A compiled Whisper that returns weights of cross-attention, and the original that computes them."""
    folder = save_tiny_speech(tmp_path_factory.mktemp("speech") / "whisper", "whisper")
    options = SHAPES["whisper"] | {"output_attentions": True}
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **options)
    original = AutoModelForSpeechSeq2Seq.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model, original.eval()


@pytest.mark.full(days=5)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"temperature": 0.6}, {"use_cache": False}, {"prompt_ids": torch.tensor([55, 20, 21])}],
    ids=lambda options: "+".join(options) or "greedy",
)
@pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")  # transformers repeats a tensor with NumPy
def test_token_timestamps_match_transformers(with_weights, options):
    inputs = sounds("whisper", 3) | {"attention_mask": torch.ones(3, FRAMES, dtype=torch.int64)}
    inputs["attention_mask"][1, FRAMES // 2 :] = 0
    settings = {"return_token_timestamps": True, "return_timestamps": True, "max_new_tokens": 10, **KNOWN, **options}
    results = []
    for runner in with_weights:
        set_seed(0)
        results.append(runner.generate(**inputs, **settings))
    result, expected = results
    assert torch.equal(result["sequences"], expected["sequences"])
    assert torch.equal(result["token_timestamps"], expected["token_timestamps"])
    assert len(result["token_timestamps"].unique()) > 3, "the times must be able to differ"


def test_cross_attentions_match_transformers(with_weights, tmp_path):
    model, original = with_weights
    outputs = {error.output for error in model.prepared.validation}
    assert {f"sources of {FRAMES}: token {step} cross_attentions" for step in (0, 1)} <= outputs
    inputs = sounds("whisper", 3) | {"decoder_input_ids": torch.tensor([[50, 9, 8]] * 3)}
    with torch.no_grad():
        expected = original(**inputs, output_attentions=True).cross_attentions
    actual = model(**inputs, output_attentions=True).cross_attentions
    assert len(actual) == len(expected) == 3
    for output, reference in zip(actual, expected, strict=True):
        assert torch.allclose(output, reference, atol=1e-5)
    with raises(ConfigError, options=["output_attentions"]):
        model.encoder(**sounds("whisper", 1), output_attentions=True)
    model.save_pretrained(tmp_path / "saved")
    loaded_model = NeuronModelForSpeechSeq2Seq.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded_model(**inputs).cross_attentions[0], actual[0])


def test_left_padded_targets(whisper):
    model, original = whisper
    inputs = sounds("whisper", 2)
    ids = torch.tensor([[1, 1, 50, 9], [50, 8, 7, 6]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    actual = model(**inputs, decoder_input_ids=ids, decoder_attention_mask=mask).logits
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    targets = {"decoder_input_ids": ids, "decoder_attention_mask": mask, "decoder_position_ids": positions}
    with torch.no_grad():
        expected = original(**inputs, **targets).logits
    assert torch.allclose(actual[mask.bool()], expected[mask.bool()], atol=1e-4)


def test_saved_model_is_loaded_again(pair, tmp_path):
    model, _ = pair
    model.save_pretrained(tmp_path / "saved")
    loaded_model = NeuronModelForSpeechSeq2Seq.from_pretrained(tmp_path / "saved")
    assert type(loaded_model) is type(model) and loaded_model.neuron_config == model.neuron_config
    inputs = sounds(typed(pair), 2)
    assert torch.equal(loaded_model.generate(**inputs, max_new_tokens=5), model.generate(**inputs, max_new_tokens=5))
    with raises(ModelError, model_class="NeuronModelForSpeechSeq2Seq"):
        NeuronModelForCTC.from_pretrained(tmp_path / "saved")


@pytest.mark.full(days=4)
def test_target_stops_at_cache_end_with_a_warning(tmp_path, caplog):
    folder = save_tiny_speech(tmp_path / "moonshine", "moonshine")
    options = SHAPES["moonshine"] | {"decoder_sequence_length": 9}
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **options)
    with caplog.at_level(logging.WARNING):
        result = model.generate(**sounds("moonshine", 1), max_new_tokens=30, eos_token_id=-1)
    assert result.shape == (1, 9)
    assert "decoder_sequence_length=9" in caplog.text


# One task, two kinds of models.


def test_class_of_other_kind_is_named(tmp_path):
    ctc = save_tiny_encoder(tmp_path / "ctc", "wav2vec2", "automatic-speech-recognition")
    with raises(ModelError, model_class="NeuronModelForCTC"):
        NeuronModelForSpeechSeq2Seq.from_pretrained(ctc, export=True, optlevel="1")
    whisper = save_tiny_speech(tmp_path / "whisper", "whisper")
    with raises(ModelError, model_class="NeuronModelForSpeechSeq2Seq"):
        NeuronModelForCTC.from_pretrained(whisper, export=True, optlevel="1")
    moonshine = save_tiny_speech(tmp_path / "moonshine", "moonshine")
    with raises(ModelError, model_type="moonshine"):
        NeuronWhisperForConditionalGeneration.from_pretrained(moonshine, export=True, **SHAPES["moonshine"])
    shapes = tiny_shapes("wav2vec2", "automatic-speech-recognition")
    exported_model = NeuronModelForCTC.from_pretrained(ctc, export=True, **shapes)
    exported_model.save_pretrained(tmp_path / "saved")
    with raises(ModelError, model_class="NeuronModelForCTC"):
        NeuronModelForSpeechSeq2Seq.from_pretrained(tmp_path / "saved")


START = torch.tensor([[50]])
FEATURES, VALUES = torch.zeros(1, MELS, FRAMES), {"input_values": torch.zeros(1, 4000)}
LATE, LONGER = torch.ones(1, 4000), {"encoder_outputs": (torch.zeros(1, 99, 32),)}
LATE[:, :9] = 0


def target(tokens: list[int], mask: list[int] | None = None) -> dict[str, torch.Tensor]:
    """A spectrogram with the tokens of its target."""
    masked = {} if mask is None else {"decoder_attention_mask": torch.tensor([mask])}
    return {"input_features": FEATURES, "decoder_input_ids": torch.tensor([tokens]), **masked}


REFUSALS = {
    "another number of frames": ("whisper", {"input_features": torch.zeros(1, MELS, 30)}, {"size": 30}),
    "other channels": ("whisper", {"input_features": torch.zeros(1, 80, FRAMES)}, {"names": ["input_features"]}),
    "frames of another rank": ("whisper", {"input_features": torch.zeros(MELS, FRAMES)}, {"names": ["input_features"]}),
    "whole numbers": ("whisper", {"input_features": FEATURES.long()}, {"names": ["input_features"]}),
    "a recording for whisper": ("whisper", VALUES, {"names": ["input_values", "input_features"]}),
    "a spectrogram for moonshine": (
        "moonshine",
        {"input_features": FEATURES},
        {"names": ["input_features", "input_values"]},
    ),
    "no sound": ("moonshine", {}, {"names": ["input_values"]}),
    "no rows": ("moonshine", {"input_values": torch.zeros(0, 4000)}, {"names": ["input_values"]}),
    "too long": ("moonshine", {"input_values": torch.zeros(1, 6001)}, {"size": 6001, "buckets": [3000, 6000]}),
    "too short": ("moonshine", {"input_values": torch.zeros(1, 500)}, {"num_samples": 500}),
    "another rank": ("moonshine", {"input_values": torch.zeros(1, 1, 4000)}, {"names": ["input_values"]}),
    "other mask": (
        "moonshine",
        VALUES | {"attention_mask": torch.ones(1, 9)},
        {"option": "attention_mask", "shape": [1, 9]},
    ),
    "padding before the recording": ("moonshine", VALUES | {"attention_mask": LATE}, {"option": "attention_mask"}),
    "more targets than recordings": (
        "moonshine",
        VALUES | {"decoder_input_ids": START.expand(2, 1)},
        {"num_targets": 2},
    ),
    "no such token": ("whisper", target([VOCABULARY]), {"token": VOCABULARY}),
    "target too long": ("whisper", target([9] * (TARGET + 1)), {"num_tokens": TARGET + 1}),
    "padding behind a target": ("whisper", target([50, 9], mask=[1, 0]), {"option": "decoder_attention_mask"}),
    "hidden states of a longer source": ("moonshine", LONGER, {"size": 99}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_misfit_inputs_are_refused(pairs, case):
    model_type, arguments, details = REFUSALS[case]
    with raises(ShapeError, **details):
        pairs[model_type][0](**{"decoder_input_ids": START, **arguments})


def test_uncompiled_outputs_are_refused(whisper):
    model, _ = whisper
    with raises(ConfigError, option="return_token_timestamps"):
        model.generate(FEATURES, return_token_timestamps=True, return_timestamps=True, **KNOWN)
    with raises(ConfigError, options=["output_attentions"]):
        model(FEATURES, decoder_input_ids=START, output_attentions=True)
    with raises(ConfigError, options=["output_attentions", "output_hidden_states"]):
        model(FEATURES, decoder_input_ids=START, output_attentions=True, output_hidden_states=True)
    with pytest.raises(TypeError, match="no_such_input"):
        model(FEATURES, no_such_input=1)
    with pytest.raises(ValueError, match="max_target_positions"):
        model.generate(FEATURES, max_new_tokens=TARGET + 1, **KNOWN)


def test_uncompiled_outputs_are_ignored_under_rules_of_optimum_neuron(whisper):
    model, _ = whisper
    options = {"max_new_tokens": 4, "return_dict_in_generate": True, **KNOWN}
    with upstream_rules():
        answer = model.generate(FEATURES, output_attentions=True, **options)
    assert torch.equal(answer["sequences"], model.generate(FEATURES, **options)["sequences"])
    assert not any("attentions" in name for name in answer)


def test_encoder_and_decoder_can_be_called_alone(pair):
    model, original = pair
    inputs, ids = sounds(typed(pair), 1), torch.randint(3, 49, (1, 4))
    with torch.no_grad():
        expected = original(**inputs, decoder_input_ids=ids)
    encoded = model.encoder(**inputs)
    torch.testing.assert_close(encoded[0], expected.encoder_last_hidden_state, atol=1e-4, rtol=1e-4)
    actual = model.decoder(ids, encoder_hidden_states=encoded[0])
    torch.testing.assert_close(actual.logits, expected.logits, atol=1e-4, rtol=1e-4)
    assert f"encode_{model.source_buckets[0]}" in model.model.graphs


@pytest.mark.full(days=2)
def test_sequence_length_is_length_of_whispers_targets(tmp_path):
    folder = save_tiny_speech(tmp_path / "whisper", "whisper")
    shapes = SHAPES["whisper"] | {"sequence_length": 24, "num_beams": 2}
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **shapes)
    assert model.neuron_config.num_target_slots == 24 and model.generation_config.num_beams == 2
    original = AutoModelForSpeechSeq2Seq.from_pretrained(folder, dtype=torch.float32).eval()
    options = {"no_repeat_ngram_size": 1, "max_new_tokens": 8, **KNOWN}
    result = generated(model, sounds("whisper", 2), **options)
    assert result == generated(original, sounds("whisper", 2), num_beams=2, **options)
    model.save_pretrained(tmp_path / "out")
    assert NeuronModelForSpeechSeq2Seq.from_pretrained(tmp_path / "out", sequence_length=24).batch_size == 2
