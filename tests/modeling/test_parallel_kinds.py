"""Vision-language models, encoder-decoders and encoders that several cores share: results of transformers."""

from __future__ import annotations

import pytest
import torch
import transformers
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq, AutoProcessor

import optimum_neuron
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import save_folder
from optimum_neuron.options.configuration import DEGREES
from optimum_neuron.sources import TASKS
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.image_text import SMALL as IMAGE_SHAPES, save_tiny_image_text, tiny_prompts
from tests.modeling.common import same
from tests.raising import raises
from tests.seq2seq import SHAPES, SOURCE, VOCABULARY, save_tiny_seq2seq
from tests.speech import save_tiny_speech, sounds

PARALLEL = {"export": True, "instance_type": "trn1.32xlarge", "tensor_parallel_size": 2}


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("name", "num_stages"), [("idefics3", 2), ("llava-siglip-olmo", 1)])
def test_a_vision_language_model_writes_the_tokens_of_transformers(tmp_path, name, num_stages):
    folder = save_tiny_image_text(tmp_path, name)
    options = PARALLEL | {"instance_type": "trn2.48xlarge", "pipeline_parallel_size": num_stages}
    model = optimum_neuron.NeuronModelForImageTextToText.from_pretrained(folder, **options, **IMAGE_SHAPES)
    original = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = tiny_prompts(AutoProcessor.from_pretrained(folder), 3)
    options = {"max_new_tokens": 8, "do_sample": False}
    assert model.generate(**inputs, **options).tolist() == original.generate(**inputs, **options).tolist()
    assert model.describe()["num_cores"]["value"] == 2 * num_stages
    assert [set(track.num_calls) >= {"encode_image"} for track in model.loaded.tracks] == [True, False][:num_stages]
    whole = [name for name in model.prepared.program.weights if "vision" in name]
    assert whole and not set(whole) & model.prepared.artifact.shards.of_weights.keys()


@pytest.mark.full(days=4)
@pytest.mark.parametrize("model_type", ["t5", "mt5", "bart", "m2m_100"])
def test_an_encoder_decoder_writes_the_tokens_of_transformers(tmp_path, model_type):
    folder = save_tiny_seq2seq(tmp_path, model_type)
    model = optimum_neuron.NeuronModelForSeq2SeqLM.from_pretrained(
        folder, **PARALLEL, **SHAPES | {"sequence_length": SOURCE}
    )
    original = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.randint(3, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(0))
    for options in ({}, {"num_beams": 2}):
        options |= {"max_new_tokens": 8, "do_sample": False}
        assert model.generate(ids, **options).tolist() == original.generate(ids, **options).tolist()
    of_weights = model.prepared.artifact.shards.of_weights
    assert len(of_weights) > len(model.prepared.program.weights) / 2


@pytest.mark.full(days=4)
def test_whisper_writes_the_tokens_of_transformers(tmp_path):
    folder = save_tiny_speech(tmp_path, "whisper")
    options = {"batch_size": 2, "optlevel": "1"}
    model = optimum_neuron.NeuronModelForSpeechSeq2Seq.from_pretrained(folder, **PARALLEL, **options)
    original = AutoModelForSpeechSeq2Seq.from_pretrained(folder, dtype=torch.float32)
    inputs = sounds("whisper", 2)
    assert model.generate(**inputs, max_new_tokens=6).tolist() == original.generate(**inputs, max_new_tokens=6).tolist()
    assert len(model.prepared.loaded.claim.core_ids) == 2


ENCODERS = [
    ("bert", "fill-mask", {}),
    ("bert", "text-classification", {"num_attention_heads": 4, "hidden_size": 48, "intermediate_size": 50}),
    ("distilbert", "token-classification", {}),
    ("roberta", "feature-extraction", {}),
    ("vit", "image-classification", {}),
]


def compiled_encoder(folder, task, model_type, **options):
    model_class = getattr(optimum_neuron, TASKS[task].model_class)
    return model_class.from_pretrained(folder, **{**PARALLEL, **tiny_shapes(model_type, task), **options})


@pytest.mark.full(days=5)
@pytest.mark.parametrize(("model_type", "task", "overrides"), ENCODERS)
def test_an_encoder_computes_what_transformers_does(tmp_path, model_type, task, overrides):
    folder = save_tiny_encoder(tmp_path / "checkpoint", model_type, task, **overrides)
    model = compiled_encoder(folder, task, model_type)
    original = getattr(transformers, TASKS[task].auto_class).from_pretrained(folder, dtype=torch.float32).eval()
    name, *_ = model.signature.names
    inputs = {name: torch.randint(3, 90, (3, 11)) if name == "input_ids" else torch.randn(3, 3, 32, 32)}
    with torch.no_grad():
        expected = original(**inputs)
    same(model(**inputs)[0], expected[0])
    assert model.describe()["num_cores"]["value"] == 2
    save_folder(model.prepared, tmp_path / "out")
    again = type(model).from_pretrained(tmp_path / "out", instance_type=PARALLEL["instance_type"])
    assert torch.equal(again(**inputs)[0], model(**inputs)[0])
    with raises(ConfigError, options=["data_parallel_mode", *DEGREES]):
        type(model).from_pretrained(tmp_path / "out", data_parallel_mode="all")


def test_requests_that_several_cores_cannot_serve_are_refused(tmp_path):
    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    for options, error, details in (
        ({"output_attentions": True}, ConfigError, {"options": ["output_attentions", "tensor_parallel_size"]}),
        ({"data_parallel_mode": "all"}, ConfigError, {"options": ["data_parallel_mode", *DEGREES]}),
        ({"tensor_parallel_size": 8}, ConfigError, {"num_heads": 4}),
        ({"tensor_parallel_size": 0}, ConfigError, {"option": "tensor_parallel_size"}),
    ):
        with raises(error, **details):
            compiled_encoder(folder, "text-classification", "bert", **options)
    folder = save_tiny_encoder(tmp_path / "mpnet", "mpnet", "text-classification")
    with raises(ModelError, model_type="mpnet"):
        compiled_encoder(folder, "text-classification", "mpnet")
