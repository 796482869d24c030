"""What the documentation of Optimum Neuron shows, and what its tests do with models of images."""

from __future__ import annotations

import pytest
import torch
import transformers

from optimum_neuron.errors import NotExportedError
from tests.encoders import save_tiny_encoder
from tests.image_text import SMALL, processed, save_tiny_image_text
from tests.tiny import save_tokenizer

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

TEXT = {"batch_size": 1, "sequence_length": 8, "optlevel": "1", "disable_validation": True}


def test_default_model_of_a_pipeline_is_exported(tmp_path, monkeypatch):
    from optimum.neuron import NeuronModelForSequenceClassification, _pipelines, pipeline

    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_tokenizer(tmp_path / "tokenizer"))
    monkeypatch.setitem(_pipelines.DEFAULT_MODELS, "text-classification", str(folder))
    with pytest.raises(NotExportedError):
        pipeline("text-classification", tokenizer=tokenizer, export=False)
    classifier = pipeline("text-classification", tokenizer=tokenizer, **TEXT)
    assert isinstance(classifier.model, NeuronModelForSequenceClassification)
    original = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    expected = transformers.pipeline("text-classification", model=original, tokenizer=tokenizer)("abc")
    assert classifier("abc") == [{**expected[0], "score": pytest.approx(expected[0]["score"], abs=1e-3)}]


def test_images_need_no_types_of_tokens(tmp_path):
    from optimum.neuron import NeuronModelForImageTextToText

    folder = save_tiny_image_text(tmp_path / "gemma3", "gemma3")
    inputs = processed("gemma3", [1])
    assert inputs["token_type_ids"].any()
    sizes = {name: size for name, size in SMALL.items() if name != "max_num_images"}
    model = NeuronModelForImageTextToText.from_pretrained(folder, export=True, disable_validation=True, **sizes)
    assert model.neuron_config.max_num_images == 5
    options = {"max_new_tokens": 4, "do_sample": False}
    ids = model.generate(inputs["input_ids"], pixel_values=inputs["pixel_values"], **options)
    original = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    assert torch.equal(ids, original.generate(**inputs, **options))
    logits = model(input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"]).logits
    with torch.no_grad():
        torch.testing.assert_close(logits, original(**inputs).logits, atol=1e-3, rtol=1e-3)
    text = torch.full((2, 4), 60)
    zeros = torch.zeros(2, 5, *inputs["pixel_values"].shape[1:])  # they only fill up the rows
    assert torch.equal(model.generate(text, pixel_values=zeros, **options), original.generate(text, **options))


def test_graphs_of_prompts_and_of_steps(export_folder):
    from optimum.neuron import NeuronModelForCausalLM

    model = NeuronModelForCausalLM.from_pretrained(export_folder)
    assert model.context_encoding_model and model.token_generation_model
    assert not model.context_encoding_model.keys() & model.token_generation_model.keys()
    assert all("input_ids" in inputs for inputs in model.token_generation_model.values())
    assert not hasattr(model, "chunked_prefill_model")  # prompts are read in one piece
