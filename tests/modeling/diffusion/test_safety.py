"""The safety checker of a compiled pipeline flags the pictures that it flags in diffusers, after save and load too."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import ModelError
from tests.tiny_pipelines.calls import arguments, compile_options
from tests.tiny_pipelines.table import make_pipeline

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.full(days=2, by="file")]

PROMPTS = ["a red fish", "a dog"]
OPTIONS = compile_options("sd-safety") | {"batch_size": 2, "disable_validation": True}


def _call(pipe: Any) -> Any:
    return pipe(**arguments("sd-safety", prompt=PROMPTS))


def _scores(stock: Any, images: Any) -> torch.Tensor:
    """How near each picture is to the first concept."""
    checker = stock.safety_checker
    pixels = stock.feature_extractor(stock.image_processor.numpy_to_pil(images), return_tensors="pt").pixel_values
    with torch.no_grad():
        embeds = checker.visual_projection(checker.vision_model(pixels)[1])
        return torch.nn.functional.cosine_similarity(embeds, checker.concept_embeds[:1])


@pytest.fixture(scope="module")
def stock() -> Any:
    """A stock pipeline whose checker flags one of the two pictures."""
    stock = make_pipeline("sd-safety")
    checker = stock.safety_checker
    for thresholds in (checker.concept_embeds_weights, checker.special_care_embeds_weights):
        thresholds.data.fill_(2.0)
    scores = _scores(stock, _call(stock).images)
    assert (scores[0] - scores[1]).abs() > 2e-3  # scores are rounded to three digits
    checker.concept_embeds_weights.data[0] = scores.mean()
    return stock


@pytest.fixture(scope="module")
def folder(stock: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "stock"
    stock.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[Any]:
    with NeuronDiffusionPipeline.from_pretrained(folder, export=True, **OPTIONS) as pipe:
        yield pipe


@pytest.fixture(scope="module")
def saved(pipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "exported"
    pipe.save_pretrained(folder)
    return folder


def _check_equal(actual: Any, expected: Any) -> None:
    assert actual.nsfw_content_detected == expected.nsfw_content_detected
    np.testing.assert_allclose(actual.images, expected.images, atol=1e-4)


def test_the_flagged_picture_is_black(stock: Any, pipe: Any) -> None:
    expected = _call(stock)
    assert sorted(expected.nsfw_content_detected) == [False, True]
    _check_equal(_call(pipe), expected)
    black = expected.nsfw_content_detected.index(True)
    assert not expected.images[black].any() and expected.images[1 - black].any()
    assert pipe.describe()["safety_checker"]["value"] == "host"


def test_it_is_saved_and_loaded(stock: Any, saved: Path) -> None:
    assert {path.name for path in (saved / "safety_checker").iterdir()} == {"config.json", "model.safetensors"}
    index = json.loads((saved / "model_index.json").read_text())
    assert index["safety_checker"] == ["stable_diffusion", "StableDiffusionSafetyChecker"]
    assert index["requires_safety_checker"] is True
    with NeuronDiffusionPipeline.from_pretrained(saved) as pipe:
        _check_equal(_call(pipe), _call(stock))


def test_a_pipeline_without_one_does_not_check(stock: Any, saved: Path, tmp_path: Path) -> None:
    plain = copy.copy(stock)
    plain.safety_checker = None
    expected = _call(plain)
    off = {"safety_checker": None, "requires_safety_checker": False}
    with NeuronDiffusionPipeline.from_pretrained(saved, **off) as pipe:
        assert pipe.safety_checker is None and pipe.config.requires_safety_checker is False
        assert pipe.describe()["safety_checker"]["value"] == "none"
        _check_equal(_call(pipe), expected)
        pipe.save_pretrained(tmp_path / "unchecked")
    assert not (tmp_path / "unchecked/safety_checker").exists()
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "unchecked") as pipe:
        _check_equal(_call(pipe), expected)


def test_one_in_memory_takes_its_place(stock: Any, folder: Path, saved: Path) -> None:
    strict = copy.deepcopy(stock.safety_checker)
    strict.concept_embeds_weights.data.fill_(-2.0)
    for source, options in ((folder, OPTIONS | {"export": True}), (saved, {})):
        with NeuronDiffusionPipeline.from_pretrained(source, safety_checker=strict, **options) as pipe:
            output = _call(pipe)
        assert output.nsfw_content_detected == [True, True] and not np.any(output.images)


def test_a_missing_one_is_an_error_unless_it_is_left_out(saved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(saved, tmp_path / "incomplete", ignore=shutil.ignore_patterns("safety_checker"))
    with pytest.raises(ModelError) as caught:
        NeuronDiffusionPipeline.from_pretrained(folder)
    assert caught.value.details["component"] == "safety_checker"
    with NeuronDiffusionPipeline.from_pretrained(folder, safety_checker=None) as pipe:
        assert _call(pipe).nsfw_content_detected is None


def test_validation_compares_pictures_before_they_are_checked(stock: Any, folder: Path) -> None:
    strict = copy.deepcopy(stock.safety_checker)
    strict.concept_embeds_weights.data.fill_(-2.0)
    options = OPTIONS | {"disable_validation": False, "torch_dtype": "bfloat16"}
    with NeuronDiffusionPipeline.from_pretrained(folder, export=True, safety_checker=strict, **options) as pipe:
        picture = pipe.describe()["validation"][-1]
        assert picture["output"] == "picture" and picture["max_abs_error"] > 0
        assert _call(pipe).nsfw_content_detected == [True, True]
        assert pipe.safety_checker.dtype == torch.bfloat16
    assert strict.dtype == torch.float32
