"""A request for pictures as work: which component runs how often, on how many rows and cores.

Guidance runs every step with the prompt and without (Ho and Salimans 2022): as two halves on a core each, as published
measurements do, or as one batch of both. A plan is work only, so that it can be timed with other constants.

    plan = plan_pictures(pipeline, request, num_cores=1, halves_apart=True)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...core import AutoCast
from ..work import GraphWork, Layers, Work
from ..work.diffusion import (
    CLIP,
    VAE_DEFAULTS,
    scale_of,
    walk_clip,
    walk_decoder,
    walk_encoder,
    walk_flux,
    walk_pixart,
    walk_sd3,
    walk_t5,
    walk_unet,
)
from .source import Component, Pipeline

CLIP_TOKENS = int(CLIP["max_position_embeddings"])
"""Tokens of every prompt of CLIP."""
SCORE_PASSES = 3
"""Passes over scores of attention that is not fused: largest, sum of exponentials, quotient."""
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a weight by dtype."""

_WALKS: Mapping[str, Callable[..., None]] = {
    "UNet2DConditionModel": walk_unet,
    "PixArtTransformer2DModel": walk_pixart,
    "Transformer2DModel": walk_pixart,
    "SD3Transformer2DModel": walk_sd3,
    "FluxTransformer2DModel": walk_flux,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureRequest:
    """Request to a pipeline, complete; sizes of an image are in pixels."""

    batch_size: int
    """Pictures that are made together."""
    height: int
    width: int
    num_inference_steps: int
    guided: bool
    """Whether each step runs with the prompt and without."""
    text_tokens: int
    """Tokens of a prompt for T5."""
    dtype: str
    """Of the weights."""
    auto_cast: AutoCast


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One component of a request."""

    name: str
    """As in model_index.json; the decoder of the autoencoder is vae_decoder."""
    graph: GraphWork
    """One run of it, on one core."""
    count: int
    """Runs per request."""
    weight_bytes: int
    """Weights that a core keeps."""
    scratch_bytes: int
    """Values between its layers at their widest, once read and once written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PicturePlan:
    """All runs of a request."""

    runs: tuple[Run, ...]
    denoiser: str
    """Name of the run that is repeated in every step."""

    @property
    def step(self) -> Run:
        return next(run for run in self.runs if run.name == self.denoiser)


def plan_pictures(pipeline: Pipeline, request: PictureRequest, *, num_cores: int, halves_apart: bool) -> PicturePlan:
    """Count every component; `num_cores` share a diffusion transformer, and T5."""
    vae = pipeline.components["vae"].config
    scale, rows = scale_of(vae), request.batch_size
    latents: dict[str, Any] = {"batch": rows, "height": request.height // scale, "width": request.width // scale}
    prompts = rows * (2 if request.guided else 1)
    channels = int(vae.get("latent_channels", VAE_DEFAULTS["latent_channels"]))
    latent_bytes = 4 * channels * math.prod(latents.values())
    copied_bytes = 4 * 3 * rows * request.height * request.width + latent_bytes

    run = partial(_run, request)
    runs = [
        run(name, _text_walk(one, prompts, request), num_cores=num_cores, host_bytes=prompts * CLIP_TOKENS * 8)
        for name, one in pipeline.encoders.items()
    ]
    if pipeline.kind.encodes:
        runs.append(run("vae_encoder", partial(walk_encoder, config=vae, **latents), host_bytes=copied_bytes))
    apart = 2 if halves_apart else 1
    step = partial(
        _WALKS[pipeline.denoiser.class_name],
        config=pipeline.denoiser.config,
        **{**latents, "batch": prompts // apart},
        text_tokens=prompt_tokens(pipeline, request),
    )
    step_bytes = (2 * latent_bytes * prompts // rows + prompts * _prompt_bytes(pipeline, request)) // apart
    name, num_steps = pipeline.denoiser_name, request.num_inference_steps
    runs.append(run(name, step, count=num_steps, num_cores=num_cores, host_bytes=step_bytes))
    runs.append(run("vae_decoder", partial(walk_decoder, config=vae, **latents), host_bytes=copied_bytes))
    return PicturePlan(runs=tuple(runs), denoiser=name)


def written_out(work: Work) -> Work:
    """Work whose attention is not fused: its scores pass the vector engine as any other value does."""
    scores = SCORE_PASSES * work.softmax_elements
    return dataclasses.replace(work, vector_elements=work.vector_elements + scores, softmax_elements=0.0)


def prompt_tokens(pipeline: Pipeline, request: PictureRequest) -> int:
    """Return the prompt tokens of the denoiser: CLIP's or T5's; Stable Diffusion 3 takes both, zeros without T5."""
    if pipeline.denoiser.class_name == "SD3Transformer2DModel":
        return CLIP_TOKENS + request.text_tokens
    return request.text_tokens if pipeline.has_t5 else CLIP_TOKENS


def _run(
    request: PictureRequest,
    name: str,
    walk: Callable[[Layers], None],
    *,
    count: int = 1,
    num_cores: int = 1,
    host_bytes: int,
) -> Run:
    layers = Layers(element_bytes=ELEMENT_BYTES[request.dtype], auto_cast=request.auto_cast, num_cores=num_cores)
    walk(layers)
    return Run(
        name=name,
        graph=layers.graph(name, host_bytes=host_bytes),
        count=count,
        weight_bytes=layers.local_bytes,
        scratch_bytes=2 * layers.largest_bytes,
    )


def _text_walk(component: Component, prompts: int, request: PictureRequest) -> Callable[[Layers], None]:
    if component.class_name == "T5EncoderModel":
        return partial(walk_t5, config=component.config, batch=prompts, tokens=request.text_tokens)
    projects = component.class_name == "CLIPTextModelWithProjection"
    return partial(walk_clip, config=component.config, batch=prompts, tokens=CLIP_TOKENS, projects=projects)


def _prompt_bytes(pipeline: Pipeline, request: PictureRequest) -> int:
    """Bytes of one prompt's features, which go to the device in every step."""
    configs = [one.config for one in pipeline.encoders.values()]
    widest = max(config.get("d_model") or config.get("hidden_size") or CLIP["hidden_size"] for config in configs)
    return prompt_tokens(pipeline, request) * int(widest) * ELEMENT_BYTES[request.dtype]
