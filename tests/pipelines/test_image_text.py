"""transformers' image-text pipeline gives the same text over compiled models as over the reference models."""

from __future__ import annotations

import logging
import warnings

import pytest
import torch
import transformers
from transformers import AutoModelForImageTextToText, AutoProcessor

from optimum_neuron import NeuronModelForImageTextToText, pipeline
from optimum_neuron.errors import ModelError
from tests.image_text import IMAGE_TOKEN, SHAPES, save_tiny_image_text, tiny_image
from tests.raising import raises


@pytest.fixture(scope="module", params=["idefics3", "llava"])
def checkpoint(request, tmp_path_factory):
    return save_tiny_image_text(tmp_path_factory.mktemp("image_text") / request.param, request.param)


@pytest.fixture(scope="module")
def model(checkpoint):
    return NeuronModelForImageTextToText.from_pretrained(checkpoint, export=True, **SHAPES)


@pytest.fixture(scope="module")
def original(checkpoint):
    plain = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(checkpoint)
    return transformers.pipeline("image-text-to-text", model=plain, processor=processor)


def chat(number: int) -> list[dict[str, object]]:
    content = [{"type": "image", "image": tiny_image(number)}, {"type": "text", "text": "What?"}]
    return [{"role": "user", "content": content}]


def texts(run, **inputs):
    """Text that a pipeline generates; it adds to its keywords."""
    results = run(**inputs, generate_kwargs={"do_sample": False, "max_new_tokens": 6})
    rows = results if isinstance(results[0], dict) else [row[0] for row in results]
    return [row["generated_text"] for row in rows]


def test_transformers_pipeline_runs_without_warning(model, checkpoint, original, caplog):
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        processor = AutoProcessor.from_pretrained(checkpoint)
        run = transformers.pipeline("image-text-to-text", model=model, processor=processor)
        result = texts(run, text=chat(0), return_full_text=False)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert result == texts(original, text=chat(0), return_full_text=False)


def test_images_next_to_text(model, original):
    run = pipeline("image-text-to-text", model)
    inputs = {"images": [tiny_image(0)], "text": f"{IMAGE_TOKEN} a"}
    assert texts(run, **inputs) == texts(original, **inputs)


def test_several_chats(model, original):
    run, chats = pipeline("image-text-to-text", model), [chat(1), chat(2)]
    result, expected = ([rows[-1]["content"] for rows in texts(each, text=chats)] for each in (run, original))
    assert result == expected


def test_exported_folder_by_its_path_which_needs_its_processor(model, original, tmp_path):
    model.save_pretrained(tmp_path / "out")
    run = pipeline("image-text-to-text", str(tmp_path / "out"))
    result, expected = (texts(each, text=chat(0), return_full_text=False) for each in (run, original))
    assert result == expected
    (tmp_path / "out" / "processor_config.json").unlink()
    with raises(ModelError, model=str(tmp_path / "out"), auto_class="AutoProcessor"):
        pipeline("image-text-to-text", str(tmp_path / "out"))
