"""Compiled pipelines make the pictures of diffusers, are saved and loaded, and take other weights."""

from __future__ import annotations

import numpy
import pytest
import torch

import optimum_neuron
from optimum_neuron import NeuronDiffusionPipeline, main_export
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from tests.tiny_pipelines.calls import arguments, pictures
from tests.tiny_pipelines.table import make_pipeline, save_pipeline

pytestmark = pytest.mark.full(days=2, by="file")

diffusers = pytest.importorskip("diffusers")

OPTIONS = {"height": 32, "width": 32, "optlevel": "1", "disable_validation": True}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_pipeline(tmp_path_factory.mktemp("tiny") / "sd", "sd")


@pytest.fixture(scope="module")
def exported(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "exported"
    report = main_export(checkpoint, folder, height=32, width=[32, 48], optlevel="1").to_dict()
    assert [error["output"] for error in report["validation"]][-1] == "picture"
    assert all(error["ok"] for error in report["validation"])
    return folder


@pytest.fixture(scope="module")
def pipe(exported):
    with NeuronDiffusionPipeline.from_pretrained(exported) as pipe:
        pipe.set_progress_bar_config(disable=True)
        yield pipe


def picture(pipe, **changes):
    return numpy.asarray(pictures(pipe(**arguments("sd", **changes))))


def expected(**changes):
    stock = make_pipeline("sd")
    stock.set_progress_bar_config(disable=True)
    return picture(stock, **changes)


@pytest.mark.full(days=4)
def test_folders_are_those_of_diffusers(exported):
    names = {path.name for path in exported.iterdir()}
    assert names == {"model_index.json", "scheduler", "text_encoder", "tokenizer", "unet", "vae_decoder", "vae_encoder"}
    assert {path.name for path in (exported / "unet").iterdir()} >= {"model.neuron", "config.json", "model.safetensors"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"width": 48},
        {"guidance_scale": 1.0},
        {"prompt": ["a cat", "a dog"], "num_images_per_prompt": 2},
        {"negative_prompt": "rain"},
    ],
)
def test_pictures_equal_those_of_diffusers(pipe, changes):
    assert isinstance(pipe, diffusers.StableDiffusionPipeline)
    numpy.testing.assert_allclose(picture(pipe, **changes), expected(**changes), atol=1e-3)


def test_another_scheduler_and_a_callback(pipe):
    stock, seen = make_pipeline("sd"), []
    own = pipe.scheduler
    for each in (pipe, stock):
        # One configuration for both: in memory, it also knows which values are a class's defaults.
        each.scheduler = diffusers.EulerDiscreteScheduler.from_config(own.config)

    def note(pipe, step, timestep, values):
        seen.append(step)
        return values

    try:
        made = picture(pipe, callback_on_step_end=note)
    finally:
        pipe.scheduler = own
    numpy.testing.assert_allclose(made, picture(stock), atol=1e-3)
    assert seen == [0, 1]


def test_a_size_that_was_not_compiled_is_refused(pipe):
    with pytest.raises(ShapeError) as error:
        pipe(**arguments("sd", height=64))
    assert len(error.value.details["compiled"]) == 2


def test_changes_of_code_are_refused(pipe):
    for change in (pipe.enable_freeu, lambda: pipe.load_ip_adapter("x"), lambda: pipe.to("cuda")):
        with pytest.raises(ConfigError):
            change()
    assert pipe.to("cpu") is pipe


def test_other_weights_without_a_compile(exported, tmp_path):
    other = make_pipeline("sd", seed=1)
    with NeuronDiffusionPipeline.from_pretrained(exported) as pipe:
        pipe.replace_weights(unet=other.unet, vae=other.vae.state_dict(), text_encoder=other.text_encoder)
        numpy.testing.assert_allclose(picture(pipe), picture(other), atol=1e-3)
        pipe.save_pretrained(tmp_path / "other")
    with NeuronDiffusionPipeline.from_pretrained(tmp_path / "other") as pipe:
        numpy.testing.assert_allclose(picture(pipe), picture(other), atol=1e-3)


def test_guidance_on_two_cores(checkpoint):
    options = OPTIONS | {"data_parallel_mode": "unet", "export": True}
    with NeuronDiffusionPipeline.from_pretrained(checkpoint, **options) as pipe:
        assert len(pipe.describe()["cores"]["unet"]) == 2
        assert pipe.prepared.parts["unet"].program.graphs["forward"].inputs["sample"].shape[0] == 1
        numpy.testing.assert_allclose(picture(pipe), expected(), atol=1e-3)


def test_bfloat16(checkpoint):
    with NeuronDiffusionPipeline.from_pretrained(
        checkpoint, **OPTIONS, export=True, torch_dtype=torch.bfloat16
    ) as pipe:
        error = picture(pipe) - expected()
    sqnr_db = 10 * numpy.log10((expected() ** 2).sum() / (error**2).sum())
    assert sqnr_db > 20


def test_image_to_image_of_the_same_checkpoint(checkpoint):
    options = OPTIONS | {"export": True, "task": "image-to-image"}
    stock = make_pipeline("sd-img2img")
    with NeuronDiffusionPipeline.from_pretrained(checkpoint, **options) as pipe:
        assert type(pipe) is optimum_neuron.NeuronStableDiffusionImg2ImgPipeline
        made = pictures(pipe(**arguments("sd-img2img")))
    numpy.testing.assert_allclose(made, pictures(stock(**arguments("sd-img2img"))), atol=1e-3)


def test_bad_input(checkpoint, exported, tmp_path):
    with pytest.raises(ConfigError):
        NeuronDiffusionPipeline.from_pretrained(checkpoint, export=True, **(OPTIONS | {"height": 33}))
    with pytest.raises(ConfigError):
        NeuronDiffusionPipeline.from_pretrained(checkpoint, export=False)
    with pytest.raises(ConfigError):
        NeuronDiffusionPipeline.from_pretrained(exported, export=True)
    with pytest.raises(ConfigError):
        NeuronDiffusionPipeline.from_pretrained(checkpoint, heigth=32)
    with pytest.raises(ModelError):
        NeuronDiffusionPipeline.from_pretrained(tmp_path)


def test_every_public_name_of_pipelines_works_or_is_refused(pipe):
    """Names are read, and methods that would change the compiled programs are called."""
    stock = make_pipeline("sd")
    names = [name for name in dir(diffusers.DiffusionPipeline) if not name.startswith("_")]
    assert [name for name in names if not hasattr(pipe, name)] == []
    assert pipe.components.keys() == stock.components.keys() and str(pipe.device) == str(stock.device)
    assert pipe.dtype == getattr(torch, pipe.neuron_config.torch_dtype)
    changing = ("enable_", "disable_", "fuse_", "unfuse_")
    for name in sorted(name for name in names if name.startswith(changing)):
        with pytest.raises(ConfigError) as error:
            getattr(pipe, name)()
        assert error.value.details["option"] == name and error.value.hint
    assert pipe.maybe_free_model_hooks() is None and pipe.to("cpu") is pipe
