"""Inputs that do not fit a compiled model, for models of every kind."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron import (
    NeuronModelForAudioClassification,
    NeuronModelForCTC,
    NeuronModelForImageClassification,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification,
    pipeline,
)
from optimum_neuron.errors import ConfigError, ShapeError
from tests import seq2seq
from tests.encoders import IMAGE, SAMPLES, save_letters, save_tiny_encoder
from tests.raising import raises

IDS = torch.full((2, 8), 5)


@pytest.fixture(scope="module")
def models(tmp_path_factory, environment):
    """One model of each kind."""
    folder = tmp_path_factory.mktemp("models")

    def export(model_class, name, model_type, task, **shapes):
        path = save_letters(save_tiny_encoder(folder / name, model_type, task))
        return model_class.from_pretrained(path, export=True, optlevel="1", **shapes)

    text, sound = {"batch_size": 2, "sequence_length": [8, 16]}, {"audio_sequence_length": SAMPLES}
    t5 = seq2seq.save_tiny_seq2seq(folder / "t5", "t5")
    return {
        "text": export(NeuronModelForSequenceClassification, "bert", "bert", "text-classification", **text),
        "image": export(NeuronModelForImageClassification, "vit", "vit", "image-classification"),
        "sound": export(NeuronModelForAudioClassification, "wav2vec2", "wav2vec2", "audio-classification", **sound),
        "letters": export(NeuronModelForCTC, "ctc", "wav2vec2", "automatic-speech-recognition", **sound),
        "seq2seq": NeuronModelForSeq2SeqLM.from_pretrained(t5, export=True, **seq2seq.SHAPES),
    }


def images(*shape, **options):
    return {"pixel_values": torch.zeros(shape, **options)}


def sounds(*shape, **options):
    return {"input_values": torch.zeros(shape, **options)}


CASES = {
    "list": ("text", {"input_ids": [[5, 6]]}, {"names": ["input_ids"]}),
    "array": ("text", {"input_ids": IDS.numpy()}, {"names": ["input_ids"]}),
    "tokens that are true or false": ("text", {"input_ids": IDS.bool()}, {"names": ["input_ids"]}),
    "length": ("text", {"input_ids": torch.full((1, 17), 5)}, {"size": 17, "buckets": [8, 16]}),
    "misspelt": ("text", {"input_ids": IDS, "atention_mask": IDS}, {"names": ["atention_mask"]}),
    "height of an image": ("image", images(1, 3, 48, 40), {"axis": "height", "size": 48}),
    "width of an image": ("image", images(1, 3, 48, 40), {"axis": "width", "size": 40}),
    "gray image": ("image", images(1, 1, IMAGE, IMAGE), {"axis": "num_channels", "size": 1, "buckets": [3]}),
    "image of bytes": ("image", images(1, 3, IMAGE, IMAGE, dtype=torch.uint8), {"names": ["pixel_values"]}),
    "image without a batch": ("image", images(3, IMAGE, IMAGE), {"names": ["pixel_values"]}),
    "sound that is too long": ("sound", sounds(1, SAMPLES + 1), {"size": SAMPLES + 1, "buckets": [SAMPLES]}),
    "sound shorter than a frame": ("sound", sounds(1, 3), {"names": ["input_values"]}),
    "letters of no frame": ("letters", sounds(1, 43), {"names": ["input_values"]}),
    "sound of whole numbers": ("sound", sounds(1, SAMPLES, dtype=torch.int16), {"names": ["input_values"]}),
    "numbers as a source": (
        "seq2seq",
        {"input_ids": IDS.float(), "labels": IDS},
        {"input": "input_ids", "dtype": "float32"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_misfit_input_is_named(models, case):
    kind, inputs, details = CASES[case]
    with raises(ShapeError, **details) as error:
        models[kind](**inputs)
    assert "?." not in str(error.value)


@pytest.mark.parametrize("kind", ["text", "seq2seq", "image"])
def test_int32_and_device_inputs_are_accepted(models, kind):
    inputs = {
        "text": {"input_ids": IDS},
        "seq2seq": {"input_ids": IDS, "decoder_input_ids": IDS[:, :3]},
        "image": images(1, 3, IMAGE, IMAGE),
    }[kind]
    others = {name: (tensor.int() if kind != "image" else tensor).to("neuron") for name, tensor in inputs.items()}
    assert torch.equal(models[kind](**others).logits, models[kind](**inputs).logits)


def test_shortest_recording_is_one_frame(models):
    assert models["letters"](**sounds(1, 44)).logits.shape[1] == 1


def test_tokenizer_limit_is_set_to_compiled_length(tmp_path):
    folder = save_letters(save_tiny_encoder(tmp_path, "bert", "text-classification"))
    piped = pipeline("text-classification", folder, export=True, optlevel="1")
    assert piped.model.input_static_shapes["sequence_length"] == 40  # the model's positions
    assert piped.tokenizer.model_max_length == 40
    assert piped("a" * 500, truncation=True)[0]["score"] > 0
    with raises(ShapeError, buckets=[40]):
        piped("a" * 500)
    with raises(ConfigError, option="sequence_length", value=41, limit=40):
        pipeline("text-classification", folder, export=True, sequence_length=41, optlevel="1")
