"""A compiled pipeline refuses by name what it cannot do: guidance that is not compiled, methods, other models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from optimum_neuron import (
    NeuronDiffusionPipeline,
    NeuronStableDiffusionPipeline,
    NeuronStableDiffusionXLPipeline,
)
from optimum_neuron.errors import ConfigError, ModelError, ValidationError
from optimum_neuron.kinds.diffusion import NeuronDiffusionConfig
from optimum_neuron.modeling import diffusion
from tests.raising import raises
from tests.tiny_pipelines.calls import arguments, compile_options
from tests.tiny_pipelines.table import make_pipeline, save_pipeline

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.full(days=2, by="file")]

CALLS = {
    "guidance_scale": {"guidance_scale": 7.5},
    "negative_prompt": {"negative_prompt": "blue"},
    "negative_prompt_embeds": {"negative_prompt_embeds": torch.zeros(1, 16, 32)},
}


def compiled(folder: Path, name: str) -> Any:
    options = compile_options(name) | {"disable_validation": True, "guidance_scale": 0.0}
    pipe = NeuronDiffusionPipeline.from_pretrained(save_pipeline(folder, name), export=True, **options)
    pipe.set_progress_bar_config(disable=True)
    return pipe


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with compiled(tmp_path_factory.mktemp("stock"), "sd-turbo") as pipe:
        yield pipe


def _check_refused(pipe: Any, name: str, option: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        pipe(**arguments(name, **changes))
    assert caught.value.details["option"] == option and caught.value.details["exported"] == 0
    assert caught.value.hint


@pytest.mark.parametrize("option", CALLS)
def test_guidance_that_was_not_compiled_is_refused(pipe: Any, option: str) -> None:
    _check_refused(pipe, "sd-turbo", option, {"guidance_scale": 0.0, **CALLS[option]})


def test_calls_without_guidance_run(pipe: Any) -> None:
    for changes in ({}, {"guidance_scale": 1.0}, {"negative_prompt": ""}, {"guidance_scale": None}):
        assert len(pipe(**arguments("sd-turbo", **changes)).images) == 1


@pytest.mark.full(days=7)
@pytest.mark.parametrize("name", ["sd-img2img", "sd-inpaint", "sdxl", "sd3", "pixart-alpha"])
def test_guidance_is_refused_by_every_family(name: str, tmp_path: Path) -> None:
    with compiled(tmp_path, name) as pipe:
        _check_refused(pipe, name, "guidance_scale", {"guidance_scale": 7.5})
        _check_refused(pipe, name, "negative_prompt", {"guidance_scale": 0.0, "negative_prompt": "blue"})


def test_guidance_that_is_an_input_of_the_model_may_change(tmp_path: Path) -> None:
    with compiled(tmp_path, "flux") as pipe:
        assert len(pipe(**arguments("flux", guidance_scale=7.5)).images) == 1


METHODS = (
    *("unfuse_qkv_projections", "enable_xformers_memory_efficient_attention", "unload_textual_inversion"),
    *("disable_xformers_memory_efficient_attention", "set_use_memory_efficient_attention_xformers"),
    *("load_lora_into_unet", "load_lora_into_transformer", "load_lora_into_text_encoder", "enable_lora_hotswap"),
    *("set_lora_device", "from_single_file", "load_ip_adapter", "unfuse_lora", "enable_group_offload"),
)


@pytest.mark.parametrize("name", METHODS)
def test_methods_that_are_refused(pipe: Any, name: str) -> None:
    for owner in (pipe, type(pipe)):
        with pytest.raises(ConfigError) as caught:
            getattr(owner, name)()
        assert caught.value.details["option"] == name


def test_every_method_that_changes_models_is_refused_or_ours() -> None:
    """A new method of diffusers must be looked at before it is in a class of ours."""
    verbs = ("enable_", "disable_", "fuse_", "unfuse_", "load_", "unload_", "set_", "from_", "delete_", "reset_")
    harmless = {"load_config", "from_config", "set_progress_bar_config", "reset_device_map"}
    for name in diffusion.CLASSES:
        kind = getattr(diffusion, name)
        names = [n for n in dir(kind) if n.startswith(verbs)]
        owners = {n: next(base for base in kind.__mro__ if n in base.__dict__).__module__ for n in names}
        assert {n for n, owner in owners.items() if not owner.startswith("optimum_neuron")} <= harmless


def test_a_compiled_model_stays(pipe: Any) -> None:
    unet = pipe.unet
    for value in (None, torch.nn.Linear(1, 1)):
        with pytest.raises(ConfigError) as caught:
            pipe.unet = value
        assert caught.value.details["component"] == "unet"
    assert pipe.unet is unet
    pipe.scheduler = type(pipe.scheduler).from_config(pipe.scheduler.config)
    assert len(pipe(**arguments("sd-turbo")).images) == 1


def test_images_without_an_image_adapter(pipe: Any) -> None:
    for name in ("ip_adapter_image", "ip_adapter_image_embeds"):
        with pytest.raises(ConfigError) as caught:
            pipe(**arguments("sd-turbo", **{name: [torch.zeros(1, 3, 16, 16)]}))
        assert caught.value.details["option"] == name


def test_other_devices_and_dtypes(pipe: Any) -> None:
    assert pipe.to("cpu").to("neuron").to(torch.float32) is pipe
    for place, details in (("cuda", {"device": "cuda"}), (torch.bfloat16, {"dtype": "torch.bfloat16"})):
        with pytest.raises(ConfigError) as caught:
            pipe.to(place)
        assert caught.value.details == details


def test_adapters_that_were_not_loaded(pipe: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        pipe.set_adapters("style")
    assert caught.value.details["adapter_names"] == ["style"] and "load_lora_weights" in caught.value.hint


WITHOUT_EFFECT = {"data_parallel_mode": "transformer", "sequence_length": 24}


@pytest.mark.parametrize("option", WITHOUT_EFFECT)
def test_options_without_effect(tmp_path: Path, option: str) -> None:
    folder = save_pipeline(tmp_path, "sd")
    options = compile_options("sd") | {option: WITHOUT_EFFECT[option]}
    with pytest.raises(ConfigError) as caught:
        NeuronDiffusionPipeline.from_pretrained(folder, export=True, **options)
    assert caught.value.details["option"] == option


def test_options_without_effect_of_an_exported_pipeline(pipe: Any, tmp_path: Path) -> None:
    pipe.save_pretrained(tmp_path / "saved")
    with pytest.raises(ConfigError) as caught:
        NeuronDiffusionPipeline.from_pretrained(tmp_path / "saved", data_parallel_mode="transformer")
    assert caught.value.details["option"] == "data_parallel_mode"


def test_weights_that_are_not_numbers(tmp_path: Path) -> None:
    stock = make_pipeline("sd")
    torch.nn.init.constant_(stock.unet.conv_in.weight, float("nan"))
    stock.save_pretrained(tmp_path)
    with pytest.raises(ValidationError) as caught:
        NeuronDiffusionPipeline.from_pretrained(tmp_path, export=True, **compile_options("sd"))
    assert "NaN" in caught.value.hint


@pytest.mark.parametrize("scale", ["high", True, float("inf")])
def test_guidance_that_is_no_number(scale: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        NeuronDiffusionConfig(guidance_scale=scale)
    assert caught.value.details == {"option": "guidance_scale", "value": scale}


def test_a_folder_of_another_pipeline(tmp_path: Path) -> None:
    folder = save_pipeline(tmp_path, "sd")
    with raises(ConfigError, pipeline="StableDiffusionXLPipeline"):
        NeuronStableDiffusionXLPipeline.from_pretrained(folder, export=True, **compile_options("sd"))
    with raises(ModelError, task="inpainting"):
        NeuronStableDiffusionPipeline.from_pretrained(folder, export=True, task="inpainting")
    with raises(ModelError, model=str(folder / "unet")):
        NeuronDiffusionPipeline.from_pretrained(folder / "unet", export=True)


def test_models_of_another_pipeline(pipe: Any) -> None:
    with raises(ConfigError, pipeline="str"):
        NeuronStableDiffusionPipeline.from_pipe("sd")
    with raises(ConfigError, pipeline=type(pipe).__name__):
        NeuronDiffusionPipeline.from_pipe(pipe)
    with raises(ModelError, pipeline=type(pipe).__name__):
        NeuronStableDiffusionXLPipeline.from_pipe(pipe)
