"""Attention in slices, and pictures decoded in tiles or one by one: as diffusers' settings, with less memory."""

from __future__ import annotations

import numpy
import pytest

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import ConfigError, ValidationError
from tests.tiny_pipelines.calls import arguments, pictures
from tests.tiny_pipelines.table import make_pipeline, save_pipeline

pytest.importorskip("diffusers")

pytestmark = pytest.mark.full(days=3, by="file")

SIDE = 48
"""Larger than a tile of the tiny autoencoder."""
SIZES = {"height": SIDE, "width": SIDE, "num_images_per_prompt": 2, "optlevel": "1"}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("tiny") / "sd", "sd")


OPTIONS = {"vae_tiling": True, "vae_slicing": True, "attention_slicing": "max"}
SETTERS = {"vae": [("enable_tiling",), ("enable_slicing",)], "unet": [("set_attention_slice", "max")]}
"""The same in diffusers."""


@pytest.fixture(scope="module")
def pipe(checkpoint):
    with compiled(checkpoint, **OPTIONS) as pipe:
        yield pipe


@pytest.fixture(scope="module")
def plain_scratch(checkpoint):
    with compiled(checkpoint, disable_validation=True) as plain:
        return scratch_bytes(plain)


def compiled(folder, **options):
    pipe = NeuronDiffusionPipeline.from_pretrained(folder, export=True, **SIZES, **options)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def scratch_bytes(pipe):
    return {name: part.need.scratch for name, part in pipe.prepared.parts.items()}


def picture(pipe):
    return numpy.asarray(pictures(pipe(**arguments("sd", height=SIDE, width=SIDE, num_images_per_prompt=2))))


def stock(setters):
    pipe = make_pipeline("sd")
    pipe.set_progress_bar_config(disable=True)
    for model, calls in setters.items():
        for name, *values in calls:
            getattr(getattr(pipe, model), name)(*values)
    return picture(pipe)


def test_pictures_are_those_of_diffusers_with_the_same_settings(pipe):
    numpy.testing.assert_allclose(picture(pipe), stock(SETTERS), atol=1e-3)


def test_tiles_change_a_picture():
    assert numpy.abs(stock({"vae": [("enable_tiling",)]}) - stock({})).max() > 1e-2


def test_slices_that_are_wrong_are_found(checkpoint, monkeypatch):
    """The reference model attends with all heads at once."""
    from diffusers.models.attention_processor import SlicedAttnProcessor

    real = SlicedAttnProcessor.__call__
    monkeypatch.setattr(SlicedAttnProcessor, "__call__", lambda *args, **options: 1.2 * real(*args, **options))
    with pytest.raises(ValidationError):
        compiled(checkpoint, attention_slicing="max", disable_neuron_cache=True)


@pytest.mark.parametrize("option", ["vae_tiling", "vae_slicing"])
def test_decoder_takes_less_memory(checkpoint, pipe, plain_scratch, option):
    expected, actual = plain_scratch["vae_decoder"], scratch_bytes(pipe)["vae_decoder"]
    assert actual < 0.4 * expected  # of one tile of one picture
    with compiled(checkpoint, disable_validation=True, **{option: True}) as one:
        assert actual < scratch_bytes(one)["vae_decoder"] < 0.7 * expected


def test_options_are_saved_and_must_agree(pipe, tmp_path):
    pipe.save_pretrained(tmp_path / "exported")
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "exported") as again:
        assert {name: getattr(again.neuron_config, name) for name in OPTIONS} == OPTIONS
    with pytest.raises(ConfigError):
        NeuronDiffusionPipeline.from_pretrained(tmp_path / "exported", vae_tiling=False)


def test_unknown_size_of_a_slice_is_rejected(checkpoint):
    with pytest.raises(ConfigError) as caught:
        compiled(checkpoint, attention_slicing="half")
    assert caught.value.details["option"] == "attention_slicing"


@pytest.mark.parametrize(
    ("name", "option", "value"), [("ddpm", "vae_tiling", True), ("pixart-alpha", "attention_slicing", "auto")]
)
def test_an_option_without_effect_is_rejected(tmp_path, name, option, value):
    folder = save_pipeline(tmp_path / name, name)
    with pytest.raises(ConfigError) as caught:
        NeuronDiffusionPipeline.from_pretrained(folder, export=True, **{option: value})
    assert caught.value.details["option"] == option
