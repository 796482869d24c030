"""Facts of loaded models under Optimum Neuron's names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from optimum_neuron import (
    NeuronModelForCausalLM,
    NeuronModelForFeatureExtraction,
    NeuronModelForImageClassification,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSpeechSeq2Seq,
)
from optimum_neuron.errors import ModelError
from optimum_neuron.options.configuration import is_export
from tests import seq2seq, speech
from tests.encoders import save_letters, save_tiny_encoder, tiny_shapes
from tests.raising import raises
from tests.tiny import SHAPES, VOCABULARY

IDS = torch.arange(3, 11).reshape(1, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_letters(save_tiny_encoder(tmp_path_factory.mktemp("facts") / "bert", "bert", "feature-extraction"))


def bert(folder: Path, **options: Any) -> NeuronModelForFeatureExtraction:
    shapes = tiny_shapes("bert", "feature-extraction")
    return NeuronModelForFeatureExtraction.from_pretrained(folder, export=True, **{**shapes, **options})


def test_configuration_has_facts_of_compile(folder, tmp_path):
    model = bert(folder, output_hidden_states=True)
    facts = model.config.neuron
    assert facts["static_batch_size"] == 2 and facts["static_sequence_length"] == 16
    assert (facts["task"], facts["model_type"], facts["tensor_parallel_size"]) == ("feature-extraction", "bert", 1)
    assert facts["output_hidden_states"] is True and facts["output_attentions"] is False
    assert not hasattr(model.prepared.source.config, "neuron"), "a configuration of the user's stays as it is"
    model.save_pretrained(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["neuron"] == facts
    assert NeuronModelForFeatureExtraction.from_pretrained(tmp_path / "out").config.neuron == facts


@pytest.mark.full(days=4)
def test_decoders_and_encoder_decoders_have_facts(model, tmp_path):
    assert model.input_static_shapes == {"batch_size": 2, "sequence_length": SHAPES["sequence_length"]}
    assert model.config.neuron["static_sequence_length"] == SHAPES["sequence_length"]
    model.save_pretrained(tmp_path / "llama")
    second = NeuronModelForCausalLM.from_pretrained(tmp_path / "llama")
    assert second.config.neuron == model.config.neuron and second.config.vocab_size >= VOCABULARY
    t5 = seq2seq.save_tiny_seq2seq(tmp_path / "t5", "t5")
    model = NeuronModelForSeq2SeqLM.from_pretrained(t5, export=True, **seq2seq.SHAPES)
    sizes = {"batch_size": 2, "sequence_length": [8, seq2seq.SOURCE], "decoder_sequence_length": seq2seq.TARGET}
    facts = {name: size for name, size in model.config.neuron.items() if name.startswith("static_")}
    assert facts == {f"static_{name}": size for name, size in sizes.items()}
    whisper = speech.save_tiny_speech(tmp_path / "whisper", "whisper")
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(whisper, export=True, **speech.SHAPES["whisper"])
    assert model.config.neuron["static_nb_max_frames"] == speech.FRAMES


def test_weight_location(folder):
    for inline in (False, True):
        assert bert(folder, inline_weights_to_neff=inline).is_weights_neff_separated is not inline


def test_folder_of_model_is_always_export(folder, tmp_path):
    model = bert(folder)
    temporary = model.model_save_dir
    assert is_export(temporary) and model.model_save_dir == temporary
    expected = model(IDS).last_hidden_state
    assert torch.equal(NeuronModelForFeatureExtraction.from_pretrained(temporary)(IDS).last_hidden_state, expected)
    model.save_pretrained(tmp_path / "out")
    assert model.model_save_dir == tmp_path / "out"
    assert NeuronModelForFeatureExtraction.from_pretrained(tmp_path / "out").model_save_dir == tmp_path / "out"
    other = save_tiny_encoder(tmp_path / "other", "bert", "feature-extraction", seed=1)
    model.replace_weights(other)
    moved = model.model_save_dir
    assert moved != tmp_path / "out"
    actual = NeuronModelForFeatureExtraction.from_pretrained(moved)(IDS).last_hidden_state
    assert torch.equal(actual, model(IDS).last_hidden_state)
    del model
    assert not moved.exists(), "a temporary folder goes with its model"


def test_preprocessors_come_from_folder(folder, model, tmp_path):
    (tokenizer,) = bert(folder).preprocessors
    assert tokenizer("a cat")["input_ids"]
    assert len(model.preprocessors) == 1
    vit = save_tiny_encoder(tmp_path / "vit", "vit", "image-classification")
    shapes = tiny_shapes("vit", "image-classification")
    model = NeuronModelForImageClassification.from_pretrained(vit, export=True, **shapes)
    assert model.preprocessors == []
    (vit / "tokenizer.json").write_text("{")
    del model.__dict__["preprocessors"]
    with raises(ModelError, model=str(vit)):
        model.preprocessors  # noqa: B018
