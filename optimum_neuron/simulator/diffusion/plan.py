"""A request for pictures as work: which component runs how often, on how many rows and cores.

Guidance runs every step with the prompt and without (Ho and Salimans 2022): as two halves on a core each, as published
measurements do, or as one batch of both. A plan is work only, so that it can be timed with other constants.

    plan = plan_pictures(pipeline, request, num_cores=1, halves_apart=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...compiler import memory_need
from ...core import AutoCast
from ..work import GraphWork, Work, work_of_program
from .calls import decoder_call, denoiser_call, encoder_call, text_call
from .modules import ComponentCall, captured, completed_config
from .source import Pipeline

CLIP_TOKENS = 77
"""Tokens of every prompt of CLIP."""
SCORE_PASSES = 3
"""Passes over scores of attention that is not fused: largest, sum of exponentials, quotient."""
ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a weight by dtype."""


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
    """Values between its layers at their widest moment."""


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
    vae, denoiser, scale = pipeline.components["vae"], pipeline.denoiser_name, scale_of(pipeline)
    prompts = request.batch_size * (2 if request.guided else 1)
    pixels: dict[str, Any] = {"height": request.height, "width": request.width}
    pixels |= {"rows": request.batch_size, "dtype": request.dtype}
    latents = pixels | {"height": request.height // scale, "width": request.width // scale}
    calls = {
        name: text_call(one, rows=prompts, tokens=_tokens_of(one.class_name, request))
        for name, one in pipeline.encoders.items()
    }
    if pipeline.kind.encodes:
        calls["vae_encoder"] = encoder_call(vae, **pixels)
    rows = prompts // (2 if halves_apart else 1)
    step = latents | {"rows": rows, "text_tokens": prompt_tokens(pipeline, request)}
    calls[denoiser] = denoiser_call(pipeline.denoiser, **step)
    calls["vae_decoder"] = decoder_call(vae, **latents)
    runs = [
        _run(name, call, request, num_cores, count=request.num_inference_steps if name == denoiser else 1)
        for name, call in calls.items()
    ]
    return PicturePlan(runs=tuple(runs), denoiser=denoiser)


def scale_of(pipeline: Pipeline) -> int:
    """Pixels for each latent, along an axis."""
    return int(2 ** (len(completed_config(pipeline.components["vae"])["block_out_channels"]) - 1))


def written_out(work: Work) -> Work:
    """Work whose attention is not fused: its scores pass the vector engine as any other value does."""
    scores = SCORE_PASSES * work.softmax_elements
    return dataclasses.replace(work, vector_elements=work.vector_elements + scores, softmax_elements=0.0)


def prompt_tokens(pipeline: Pipeline, request: PictureRequest) -> int:
    """Return the prompt tokens of the denoiser: CLIP's or T5's; Stable Diffusion 3 takes both, zeros without T5."""
    if pipeline.denoiser.class_name == "SD3Transformer2DModel":
        return CLIP_TOKENS + request.text_tokens
    return request.text_tokens if pipeline.has_t5 else CLIP_TOKENS


def _run(name: str, call: ComponentCall, request: PictureRequest, num_cores: int, *, count: int) -> Run:
    program = captured(call, request.dtype, num_cores=num_cores if name.startswith(DIVIDED) else 1)
    need = memory_need(program)
    (graph,) = program.graphs
    return Run(
        name=name,
        graph=dataclasses.replace(work_of_program(program, graph, auto_cast=request.auto_cast), name=name),
        count=count,
        weight_bytes=need.weights,
        scratch_bytes=need.scratch,
    )


DIVIDED = ("text_encoder", "transformer")
"""Beginnings of the names of components that cores share."""


def _tokens_of(class_name: str, request: PictureRequest) -> int:
    """Tokens of a prompt for a text encoder."""
    return request.text_tokens if class_name == "T5EncoderModel" else CLIP_TOKENS
