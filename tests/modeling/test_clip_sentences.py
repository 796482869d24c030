"""CLIP in the layout of sentence-transformers: vectors of texts and images, against transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from optimum_neuron import NeuronSentenceTransformer
from optimum_neuron.errors import ConfigError, ShapeError
from tests.encoders import IMAGE, save_letters, save_tiny_encoder

SHAPES = {"text_batch_size": 2, "image_batch_size": 1, "sequence_length": 16, "optlevel": "1"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clip")
    folder = save_letters(save_tiny_encoder(root / "0_CLIPModel", "clip", "feature-extraction"))
    size = {"height": IMAGE, "width": IMAGE}
    CLIPImageProcessorPil(size={"shortest_edge": IMAGE}, crop_size=size).save_pretrained(folder)
    modules = [{"idx": 0, "path": "0_CLIPModel", "type": "sentence_transformers.models.CLIPModel"}]
    (root / "modules.json").write_text(json.dumps(modules))
    return root


@pytest.fixture(scope="module")
def model(root: Path, environment: None) -> NeuronSentenceTransformer:
    return NeuronSentenceTransformer.from_pretrained(root, export=True, library_name="sentence_transformers", **SHAPES)


def picture(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_texts_and_images_in_any_order(model, root):
    items = [picture(0), "a cat", picture(1), "a much longer text"]
    original = transformers.CLIPModel.from_pretrained(root / "0_CLIPModel").eval()
    pixels = model.processor([picture(0), picture(1)], return_tensors="pt")["pixel_values"]
    rows = []
    with torch.no_grad():
        for text in ("a cat", "a much longer text"):
            ids = model.tokenizer(text, return_tensors="pt", truncation=True, max_length=16)
            rows.append(original(**ids, pixel_values=pixels).text_embeds[0])
        images = original(**ids, pixel_values=pixels).image_embeds
    expected = torch.stack([images[0], rows[0], images[1], rows[1]])
    for size in (1, 32):
        np.testing.assert_allclose(model.encode(items, batch_size=size), expected.numpy(), atol=1e-5)
    one = model.encode(picture(0))
    assert one.shape == (model.get_sentence_embedding_dimension(),)
    np.testing.assert_allclose(one, images[0].numpy(), atol=1e-5)


def test_outputs_match_given_inputs(model):
    texts = model.tokenize(["a cat", "b", "c"])
    pixels = model.processor([picture(0)], return_tensors="pt")["pixel_values"]
    both = model(**texts, pixel_values=pixels)
    assert both.text_embeds.shape == (3, 24) and both.image_embeds.shape == (1, 24)
    assert torch.equal(both["sentence_embedding"], torch.cat([both.text_embeds, both.image_embeds]))
    alone = model(texts)
    assert "image_embeds" not in alone
    torch.testing.assert_close(alone.text_embeds, both.text_embeds)
    torch.testing.assert_close(model(pixel_values=pixels).image_embeds, both.image_embeds)
    with pytest.raises(ShapeError):
        model({})
    with pytest.raises(ConfigError):
        model.encode([1])


def test_export_and_subfolder_are_loaded(model, root, tmp_path):
    model.save_pretrained(tmp_path)
    loaded_model = NeuronSentenceTransformer.from_pretrained(tmp_path)
    assert type(loaded_model) is type(model)
    assert np.array_equal(loaded_model.encode("a cat"), model.encode("a cat"))
    named = NeuronSentenceTransformer.from_pretrained(root, export=True, subfolder="0_CLIPModel", **SHAPES)
    assert np.array_equal(named.encode("a cat"), model.encode("a cat"))
