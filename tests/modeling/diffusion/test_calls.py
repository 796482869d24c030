"""Calls of one compiled Stable Diffusion, against the stock pipeline: batches, sizes, guidance, schedulers, errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from optimum_neuron import NeuronDiffusionPipeline
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from tests.tiny_pipelines.calls import arguments, compile_options
from tests.tiny_pipelines.table import save_pipeline

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pipeline(tmp_path_factory.mktemp("stock"), "sd")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[Any]:
    options = compile_options("sd") | {"width": (32, 48), "batch_size": 2, "disable_validation": True}
    with NeuronDiffusionPipeline.from_pretrained(folder, export=True, **options) as pipe:
        pipe.set_progress_bar_config(disable=True)
        yield pipe


@pytest.fixture(scope="module")
def stock(folder: Path) -> Any:
    from diffusers import StableDiffusionPipeline

    pipe = StableDiffusionPipeline.from_pretrained(folder)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _embeds(seed: int) -> torch.Tensor:
    return torch.randn(1, 16, 32, generator=_seeded(seed))


def _scale(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    return {"latents": tensors["latents"] * 0.9}


def _interrupt(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    pipe._interrupt = True
    return tensors


CALLS: dict[str, dict[str, Any]] = {
    "fewer prompts than compiled": {},
    "as many prompts as compiled": {"prompt": ["a", "b"]},
    "more prompts than compiled": {"prompt": list("abcde")},
    "other resolution": {"width": 48},
    "several images of a prompt": {"num_images_per_prompt": 3},
    "no guidance": {"guidance_scale": 0.0},
    "guidance of 1": {"guidance_scale": 1.0},
    "negative prompt": {"negative_prompt": "blue"},
    "negative prompt without guidance": {"negative_prompt": "blue", "guidance_scale": 1.0},
    "generator of each prompt": {"prompt": ["a", "b"], "generator": lambda: [_seeded(1), _seeded(2)]},
    "latents": {"output_type": "latent"},
    "tensors": {"output_type": "pt"},
    "PIL images": {"output_type": "pil"},
    "a tuple": {"return_dict": False},
    "noise in each step": {"eta": 0.5},
    "rescaled guidance": {"guidance_rescale": 0.7},
    "embeddings": {"prompt": None, "prompt_embeds": _embeds(0), "negative_prompt_embeds": _embeds(1)},
    "callback": {"callback_on_step_end": _scale},
    "interrupt": {"callback_on_step_end": _interrupt},
}


def _array(output: Any) -> Any:
    first = output[0]
    return np.stack([np.asarray(image, dtype=np.float32) for image in first])


@pytest.mark.full(days=7)
@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS)
def test_calls_equal_those_of_diffusers(pipe: Any, stock: Any, changes: dict[str, Any]) -> None:
    def call(which: Any) -> Any:
        made = {name: value() if name == "generator" else value for name, value in changes.items()}
        return _array(which(**arguments("sd", **made)))

    np.testing.assert_allclose(call(pipe), call(stock), atol=1e-4)


SCHEDULERS = ("EulerDiscrete", "EulerAncestralDiscrete", "DPMSolverMultistep", "LMSDiscrete", "HeunDiscrete", "PNDM")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_may_change(pipe: Any, stock: Any, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import diffusers

    kind = getattr(diffusers, f"{name}Scheduler")
    images = []
    for each in (pipe, stock):
        monkeypatch.setattr(each, "scheduler", kind.from_config(stock.scheduler.config, skip_prk_steps=True))
        images.append(_array(each(**arguments("sd", num_inference_steps=4))))
    np.testing.assert_allclose(*images, atol=1e-4)


def test_sizes_of_the_export_are_the_defaults(pipe: Any) -> None:
    assert _array(pipe(**arguments("sd", height=None, width=None))).shape == (1, 32, 32, 3)


def test_a_resolution_that_was_not_compiled_is_rejected_with_the_compiled_ones(pipe: Any) -> None:
    for height in (40, 33):
        with pytest.raises(ShapeError) as caught:
            pipe(**arguments("sd", height=height))
        assert caught.value.details["compiled"] == [(32, 32), (32, 48)]


def test_arguments_that_change_the_model_are_rejected(pipe: Any) -> None:
    with pytest.raises(ShapeError):
        pipe(**arguments("sd", cross_attention_kwargs={"scale": 0.5}))


CHANGES = ("vae.enable_tiling", "vae.enable_slicing", "unet.fuse_qkv_projections", "unet.set_default_attn_processor")


@pytest.mark.parametrize(
    "path",
    [*CHANGES, "enable_attention_slicing", "enable_vae_tiling", "enable_vae_slicing", "enable_model_cpu_offload"],
)
def test_changes_of_compiled_code_are_rejected(pipe: Any, path: str) -> None:
    owner, _, method = path.rpartition(".")
    with pytest.raises(ConfigError) as caught:
        getattr(getattr(pipe, owner) if owner else pipe, method)()
    assert caught.value.details["option"] == method
    if "slicing" in method or "tiling" in method:
        assert method.removeprefix("enable_").removeprefix("vae_") in caught.value.hint


@pytest.mark.full(days=4)
def test_a_hundred_calls_take_no_more_memory(pipe: Any) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(20):
        pipe(**arguments("sd"))
    before = resident_bytes()
    for _ in range(100):
        pipe(**arguments("sd", num_inference_steps=1))
    assert resident_bytes() - before < 16 << 20


def test_sizes_that_the_pipeline_refuses(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        NeuronDiffusionPipeline.from_pretrained(folder, export=True, height=30, width=30)
    assert caught.value.details["pipeline"] == "StableDiffusionPipeline"


def test_a_component_is_missing(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "sd")
    shutil.rmtree(tmp_path / "sd" / "vae")
    with pytest.raises(ModelError) as caught:
        NeuronDiffusionPipeline.from_pretrained(tmp_path / "sd", export=True)
    assert caught.value.details["component"] == "vae"
