"""A diffusion pipeline as its folder describes it: the class in model_index.json, and config.json of each component.

`PIPELINES` and `COMPONENTS` list the supported classes; others are errors that name them. It reads no weights.

    pipeline = read_pipeline(folder, name="stable-diffusion-1.5")
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ModelError, nearest

INDEX = "model_index.json"
"""File that a folder of a pipeline has."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineKind:
    """Defaults of the pipeline's class in diffusers."""

    num_inference_steps: int
    guidance_scale: float
    """Weight of the prompt; above one, a step runs with the prompt and without."""
    text_tokens: int = 77
    """Tokens of a prompt for T5; CLIP always has 77."""
    doubles: bool = True
    """Whether guidance doubles the rows; otherwise its weight is an input of the model."""
    encodes: bool = False
    """Whether it begins with an image."""


_SD = PipelineKind(num_inference_steps=50, guidance_scale=7.5)
_SDXL = PipelineKind(num_inference_steps=50, guidance_scale=5.0)

PIPELINES: Mapping[str, PipelineKind] = {
    "StableDiffusionPipeline": _SD,
    "StableDiffusionImg2ImgPipeline": dataclasses.replace(_SD, encodes=True),
    "StableDiffusionInpaintPipeline": dataclasses.replace(_SD, encodes=True),
    "LatentConsistencyModelPipeline": PipelineKind(num_inference_steps=4, guidance_scale=8.5),
    "StableDiffusionXLPipeline": _SDXL,
    "StableDiffusionXLImg2ImgPipeline": dataclasses.replace(_SDXL, encodes=True),
    "StableDiffusionXLInpaintPipeline": dataclasses.replace(_SDXL, guidance_scale=7.5, encodes=True),
    "PixArtAlphaPipeline": PipelineKind(num_inference_steps=20, guidance_scale=4.5, text_tokens=120),
    "PixArtSigmaPipeline": PipelineKind(num_inference_steps=20, guidance_scale=4.5, text_tokens=300),
    "StableDiffusion3Pipeline": PipelineKind(num_inference_steps=28, guidance_scale=7.0, text_tokens=256),
    "FluxPipeline": PipelineKind(num_inference_steps=28, guidance_scale=3.5, text_tokens=512, doubles=False),
}
"""Pipelines that are counted, by the name of their class."""

_TRANSFORMERS = ("PixArtTransformer2DModel", "Transformer2DModel", "SD3Transformer2DModel", "FluxTransformer2DModel")
_ENCODERS = ("CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel")
COMPONENTS = ("UNet2DConditionModel", *_TRANSFORMERS, "AutoencoderKL", *_ENCODERS)
"""Classes of components that are counted."""

LIBRARIES = ("diffusers", "transformers")
"""Packages that components are from."""

_ONE_BY_ONE = "Estimate its models one by one: estimate(module, example_inputs=...)."

_ROLES = ("unet", "transformer", "vae", "text_encoder", "text_encoder_2", "text_encoder_3")
"""Components that the device runs; schedulers, tokenizers and checkers are the host's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Component:
    """One model of a pipeline."""

    library: str
    """diffusers or transformers."""
    class_name: str
    """Its class there."""
    config: Mapping[str, Any] = dataclasses.field(hash=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline with every component that the device runs."""

    name: str
    """Model argument as the user typed it."""
    class_name: str
    """Its class in diffusers."""
    kind: PipelineKind
    components: Mapping[str, Component] = dataclasses.field(hash=False)
    """By the names in model_index.json."""

    @property
    def denoiser_name(self) -> str:
        """The component that runs in every step: unet or transformer."""
        return "unet" if "unet" in self.components else "transformer"

    @property
    def denoiser(self) -> Component:
        return self.components[self.denoiser_name]

    @property
    def has_t5(self) -> bool:
        """Whether T5 reads prompts, whose number of tokens can be chosen."""
        return any(one.class_name == "T5EncoderModel" for one in self.encoders.values())

    @property
    def encoders(self) -> dict[str, Component]:
        """Text encoders, in order."""
        return {name: one for name, one in self.components.items() if name.startswith("text_encoder")}


def is_pipeline(folder: Path) -> bool:
    """Return whether a folder is a diffusion pipeline."""
    return (folder / INDEX).is_file()


def require_no_component(folder: Path) -> None:
    """Check that a folder is not one component of a pipeline, which does not say how often it runs.

    Raises:
        ModelError: the folder has a model of diffusers.
    """
    path = folder / "config.json"
    if path.is_file() and isinstance(data := _read(path), dict) and "_class_name" in data and "model_type" not in data:
        class_name = data["_class_name"]
        message = f"{folder} has a {class_name}, which is one component of a diffusion pipeline."
        hint = f"Pass the folder of the pipeline, which has a {INDEX}."
        raise ModelError(message, hint=hint, class_name=class_name)


def read_pipeline(folder: Path, *, name: str) -> Pipeline:
    """Read a pipeline's folder; `name` is the user's model argument.

    Raises:
        ModelError: the pipeline, one of its components, or a field of one is not counted; all are named.
    """
    index = _read(folder / INDEX)
    class_name = str(index.get("_class_name")) if isinstance(index, dict) else ""
    kind = PIPELINES.get(class_name)
    if kind is None:
        close = nearest(class_name, PIPELINES) or "."
        message = f"The pipeline {name} is a {class_name}, which is not estimated{close}"
        hint = f"{_ONE_BY_ONE} Pipelines are {', '.join(PIPELINES)}."
        raise ModelError(message, hint=hint, class_name=class_name, choices=list(PIPELINES))
    components, problems = {}, []
    for role in _ROLES:
        if not (listed := index.get(role)) or not listed[1]:
            continue
        component = Component(library=listed[0], class_name=listed[1], config=_component_config(folder / role))
        components[role] = component
        problems += [f"{role}: {problem}" for problem in _problems(component)]
    needed = (("unet", "transformer"), ("vae",), ("text_encoder", "text_encoder_2"))
    problems += [f"no {' or '.join(roles)}" for roles in needed if not components.keys() & set(roles)]
    if problems:
        message = f"The pipeline {name} has components that are not estimated: {'; '.join(problems)}."
        raise ModelError(message, hint=f"{_ONE_BY_ONE} Components are {', '.join(COMPONENTS)}.", problems=problems)
    return Pipeline(name=name, class_name=class_name, kind=kind, components=components)


def _problems(component: Component) -> list[str]:
    if component.library not in LIBRARIES:
        return [f"{component.class_name} of {component.library}"]
    if component.class_name not in COMPONENTS:
        return [f"{component.class_name}{nearest(component.class_name, COMPONENTS)}"]
    if component.class_name == "Transformer2DModel" and component.config.get("norm_type") != "ada_norm_single":
        return [f"norm_type={component.config.get('norm_type')!r}"]
    return []


def _component_config(folder: Path) -> Mapping[str, Any]:
    if not (path := folder / "config.json").is_file():
        message = f"model_index.json lists the component {folder.name}, but there is no file {path}."
        raise ModelError(message, hint="Pass a folder that save_pretrained() of the pipeline wrote.", path=str(path))
    return _read(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        message = f"{path} is not JSON ({type(error).__name__}: {error})."
        raise ModelError(message, hint="Check the file.", path=str(path)) from error
