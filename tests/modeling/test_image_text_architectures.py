"""Each vision-language architecture generates the tokens of transformers, in padded batches with images and without."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForImageTextToText

from optimum_neuron import NeuronModelForImageTextToText
from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.exporters.validation import FLOAT32_TOLERANCE, compare
from tests.image_text import IMAGE, MORE_TINY, SMALL, processed, save_tiny_image_text
from tests.modeling.common import both
from tests.raising import raises

BROKEN = {"llama4": "5.24.0"}
"""Versions of transformers whose own forward fails: Llama 4's results have no `image_outputs` there."""
NAMES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            BROKEN.get(name) == transformers.__version__, reason="transformers 5.24.0 itself fails"
        ),
    )
    for name in MORE_TINY
]

pytestmark = pytest.mark.full(days=10, by="name")
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": None, "no_repeat_ngram_size": 1}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Return a function that makes the compiled model and the original of an architecture, once each."""
    root = tmp_path_factory.mktemp("architectures")

    def make(name: str, family: str | None = None) -> tuple[Any, Any]:
        folder = save_tiny_image_text(root / f"{name}-{family}", name)
        original = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
        options = SMALL | ({"image_size": IMAGE} if name.startswith("qwen") else {})
        return NeuronModelForImageTextToText.from_pretrained(folder, export=True, family=family, **options), original

    return functools.cache(make)


def inputs_of(name: str, num_images: list[int]) -> dict[str, Any]:
    return processed(MORE_TINY[name][0], num_images)


@pytest.mark.parametrize("num_images", [[1], [1, 0, 2], [0, 0]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_greedy_matches_transformers(name, num_images, pairs):
    inputs = inputs_of(name, num_images)
    result, expected = both(pairs(name), inputs, **GREEDY)
    assert result == expected


@pytest.mark.parametrize("name", ["gemma3", "qwen2_5_vl", "qwen3_vl"])
def test_generic_decoders_match_too(name, pairs):
    compiled, original = pairs(name, "generic")
    result, expected = both((compiled, original), inputs_of(name, [1, 0, 2]), **GREEDY)
    assert result == expected and compiled.prepared.family == "generic"
    assert pairs(name)[0].prepared.family != "generic"


@pytest.mark.parametrize("options", [{"num_beams": 2}, {"use_cache": False}], ids=lambda options: "+".join(options))
@pytest.mark.parametrize("name", ["gemma3", "paligemma", "qwen2_5_vl", "qwen3_vl"])
def test_ways_to_generate(name, options, pairs):
    result, expected = both(pairs(name), inputs_of(name, [1, 0, 2]), **GREEDY | options)
    assert result == expected


def test_positions_are_saved_with_model(pairs, tmp_path):
    compiled, _ = pairs("qwen3_vl")
    inputs = inputs_of("qwen3_vl", [1, 2])
    compiled.save_pretrained(tmp_path)
    loaded = NeuronModelForImageTextToText.from_pretrained(tmp_path)
    assert torch.equal(loaded.generate(**inputs, **GREEDY), compiled.generate(**inputs, **GREEDY))


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", ["gemma3", "internvl"])
def test_images_may_be_in_rows_filled_up_with_zeros(name, pairs):
    pair, inputs = pairs(name), inputs_of(name, [1, 0, 2])
    listed = inputs["pixel_values"]
    rows = torch.zeros(3, 2, *listed.shape[1:])
    rows[0, 0], rows[2] = listed[0], listed[1:]
    _, expected = both(pair, inputs, **GREEDY)
    assert pair[0].generate(**inputs | {"pixel_values": rows}, **GREEDY).tolist() == expected
    text = inputs_of(name, [0, 0])
    _, expected = both(pair, text, **GREEDY)
    assert pair[0].generate(**text, pixel_values=rows[1:2], **GREEDY).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
def test_images_and_tokens_must_agree(name, pairs):
    compiled, _ = pairs(name)
    inputs = inputs_of(name, [1])
    with raises(ShapeError, image_tokens=compiled.prepared.metadata["image_tokens"]):
        compiled(**inputs | {"input_ids": inputs["input_ids"].fill_(60)})


@pytest.mark.parametrize(
    ("changes", "error", "details"),
    [
        ({"image_grid_thw": None}, ConfigError, {"arguments": ["image_grid_thw"]}),
        ({"mm_token_type_ids": None}, ConfigError, {"arguments": ["mm_token_type_ids"]}),
        ({"token_type_ids": torch.zeros(1, 7)}, ConfigError, {"arguments": ["token_type_ids"]}),
        ({"pixel_values": torch.zeros(15, 96)}, ShapeError, {"shape": [15, 96]}),
        ({"image_grid_thw": torch.tensor([[2, 2, 4]])}, ShapeError, {"grids": [[2, 2, 4]]}),
        ({"image_grid_thw": torch.tensor([[1, 1, 16]])}, ShapeError, {"grids": [[1, 1, 16]]}),
        (
            {"image_grid_thw": torch.tensor([[1, 6, 4]]), "pixel_values": torch.zeros(24, 96)},
            ShapeError,
            {"num_patches": {0: 24}, "limit": 16},
        ),
        ({"mm_token_type_ids": torch.full((1, 7), 2)}, ShapeError, {"input": "mm_token_type_ids"}),
        ({"position_ids": torch.zeros(2, 1, 7, dtype=torch.int64)}, ShapeError, {"input": "position_ids"}),
        ({"pixel_values": None}, ConfigError, {"arguments": ["image_grid_thw"]}),
        ({"mm_token_type_ids": torch.ones(1, 6)}, ShapeError, {"shape": [1, 6]}),
        ({"mm_token_type_ids": torch.zeros(1, 7)}, ShapeError, {"runs": [], "expected": [4]}),
        ({"image_grid_thw": torch.tensor([1, 4, 4])}, ShapeError, {"shape": [3]}),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_misfit_patches(changes, error, details, pairs):
    compiled, _ = pairs("qwen2_5_vl")
    inputs = inputs_of("qwen2_5_vl", [1]) | changes
    with raises(error, **details):
        compiled(**inputs)
    if changes.keys() <= {"image_grid_thw", "mm_token_type_ids"}:
        with raises(error, **details):
            compiled.generate(**inputs, **GREEDY)


def test_images_run_in_smallest_encoder_with_enough_patches(pairs, tmp_path, monkeypatch):
    _, original = pairs("qwen2_5_vl")
    folder = save_tiny_image_text(tmp_path / "qwen", "qwen2_5_vl")
    sizes = {"image_size": (8, 16), "image_batch_size": 2}
    compiled = NeuronModelForImageTextToText.from_pretrained(folder, export=True, **SMALL, **sizes)
    assert "bucket" in compiled.choose_image_size(3).reason and compiled.choose_image_size(5).value == 16
    loaded_class, graphs = type(compiled.loaded), []
    run = loaded_class.run
    monkeypatch.setattr(loaded_class, "run", lambda self, graph, *rest: graphs.append(graph) or run(self, graph, *rest))
    inputs = processed("qwen2_5_vl", [1, 2], grids=[[1, 2, 2], [1, 4, 4], [1, 2, 2]])
    result, expected = both((compiled, original), inputs, **GREEDY)
    assert result == expected and graphs[:2] == ["encode_image_4", "encode_image_16"]
    compiled.save_pretrained(tmp_path / "saved")
    loaded = NeuronModelForImageTextToText.from_pretrained(tmp_path / "saved")
    assert loaded.image_size == (8, 16) and torch.equal(loaded(**inputs).logits, compiled(**inputs).logits)


def test_images_torn_between_rows_are_refused(pairs):
    compiled, _ = pairs("qwen2_5_vl")
    inputs = inputs_of("qwen2_5_vl", [1, 1])
    inputs["input_ids"][0, -2], inputs["mm_token_type_ids"][0, -2] = 60, 0
    inputs["input_ids"][1, 0], inputs["attention_mask"][1, 0], inputs["mm_token_type_ids"][1, 0] = 3, 1, 1
    with raises(ShapeError, problems=["Row 0 has 3 image tokens", "Row 1 has 4 image tokens"]):
        compiled(**inputs)
