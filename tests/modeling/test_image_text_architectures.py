"""Each vision-language architecture generates the tokens of transformers, with images, without, and in padded batches."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from optimum_neuron import NeuronModelForImageTextToText
from optimum_neuron.errors import ShapeError
from optimum_neuron.exporters.validation import FLOAT32_TOLERANCE, compare
from tests.image_text import IMAGE, MORE_TINY, SMALL, processed, save_tiny_image_text
from tests.modeling.common import both, raises

GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "no_repeat_ngram_size": 1}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return a function that makes the compiled model and the original of an architecture, once each."""
    root = tmp_path_factory.mktemp("architectures")

    def make(name: str) -> tuple[Any, Any]:
        folder = save_tiny_image_text(root / name, name)
        original = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        options = SMALL | ({"image_size": IMAGE} if name.startswith("qwen") else {})
        return NeuronModelForImageTextToText.from_pretrained(folder, export=True, **options), original

    return functools.cache(make)


def inputs_of(name: str, num_images: list[int]) -> dict[str, Any]:
    return processed(MORE_TINY[name][0], num_images)


@pytest.mark.parametrize("num_images", [[1], [1, 0, 2], [0, 0]], ids=str)
@pytest.mark.parametrize("name", MORE_TINY)
def test_greedy_matches_transformers(name, num_images, pairs):
    inputs = inputs_of(name, num_images)
    result, expected = both(pairs(name), inputs, **GREEDY)
    assert result == expected


@pytest.mark.parametrize("name", MORE_TINY)
def test_logits_match_and_depend_on_images(name, pairs):
    compiled, original = pairs(name)
    inputs = inputs_of(name, [1, 2])
    with torch.no_grad():
        expected = original(**inputs).logits
    actual, real = compiled(**inputs).logits, inputs["attention_mask"].bool()
    error = compare("logits", actual[real], expected[real], tolerance=FLOAT32_TOLERANCE)
    assert error.ok and error.sqnr_db > 80, str(error)
    other = compiled(**inputs | {"pixel_values": -inputs["pixel_values"]}).logits
    assert (other - actual)[0, -1].abs().max() > 1e-3


@pytest.mark.parametrize("name", MORE_TINY)
def test_images_and_tokens_must_agree(name, pairs):
    compiled, _ = pairs(name)
    inputs = inputs_of(name, [1])
    with raises(ShapeError, image_tokens=compiled.prepared.metadata["image_tokens"]):
        compiled(**inputs | {"input_ids": inputs["input_ids"].fill_(60)})
