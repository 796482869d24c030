"""A request for pictures as work: which programs run how often, on how many rows and cores.

Guidance runs every step with the prompt and without (Ho and Salimans 2022): as two halves on a core each, as published
measurements do, or as one batch of both. A plan is work only, so that it can be timed with other constants.

    plan = plan_pictures(pipeline, request, num_cores=1, halves_apart=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...compiler import memory_need
from ...kinds.diffusion import NeuronDiffusionConfig
from ..work import GraphWork, Work, work_of_program
from .source import Pipeline

SCORE_PASSES = 3
"""Passes over scores of attention that is not fused: largest, sum of exponentials, quotient."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureRequest:
    """Request to a pipeline, complete."""

    config: NeuronDiffusionConfig
    """Of an export for the request, with one size of pictures; for a compiled pipeline its own."""
    num_inference_steps: int | None
    """None where the pipeline's call has no steps."""

    @property
    def num_pictures(self) -> int:
        """Pictures that are made together."""
        return self.config.batch_size * self.config.num_images_per_prompt

    def placed(self, pipeline: Pipeline, *, num_cores: int, halves_apart: bool) -> NeuronDiffusionConfig:
        """Return the configuration on a number of cores."""
        if pipeline.compiled is not None:
            return self.config
        mode: Any = pipeline.denoiser if halves_apart else "none"
        return dataclasses.replace(self.config, tensor_parallel_size=num_cores, data_parallel_mode=mode)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """One graph of a request."""

    name: str
    """Name of the program, such as vae_decoder; with the graph's, where it has several."""
    part: str
    graph: GraphWork
    """One run of it, on one core."""
    count: int
    """Runs per request."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PicturePlan:
    """All runs of a request."""

    runs: tuple[Run, ...]
    denoiser: str
    """Name of the program that runs in every step."""
    weight_bytes: Mapping[str, int] = dataclasses.field(hash=False)
    """Weights that a core keeps, by program."""
    scratch_bytes: int
    """Values between layers at their widest moment, of the program that has most."""

    @property
    def step(self) -> Run:
        """The run of a denoising step."""
        return max((run for run in self.runs if run.part == self.denoiser), key=lambda run: run.count)


def plan_pictures(pipeline: Pipeline, request: PictureRequest, *, num_cores: int, halves_apart: bool) -> PicturePlan:
    """Count every program; `num_cores` share a diffusion transformer, and T5."""
    config = request.placed(pipeline, num_cores=num_cores, halves_apart=halves_apart)
    parts = pipeline.parts(config, num_steps=request.num_inference_steps)
    needs = {name: memory_need(part.program) for name, part in parts.items()}
    runs = []
    for name, part in parts.items():
        for graph, count in part.counts.items():
            shown = name if len(part.counts) == 1 else f"{name} {graph}"
            work = work_of_program(part.program, graph, auto_cast=request.config.auto_cast)
            runs.append(Run(name=shown, part=name, graph=dataclasses.replace(work, name=shown), count=count))
    return PicturePlan(
        runs=tuple(runs),
        denoiser=pipeline.denoiser,
        weight_bytes={name: need.weights for name, need in needs.items()},
        scratch_bytes=max(need.scratch for need in needs.values()),
    )


def refined(base: PicturePlan, refiner: PicturePlan, *, num_steps: int) -> PicturePlan:
    """Return the plan of a base model whose latents a refiner takes on for `num_steps` more steps.

    The base decodes no picture and the refiner encodes none. Weights of both stay on the core.
    """
    before = [run for run in base.runs if run.part != "vae_decoder"]
    after = []
    for run in refiner.runs:
        if run.part == "vae_encoder":
            continue
        count = num_steps if run is refiner.step else run.count
        # A refiner's own step is one of the loop, for the host too.
        part = base.denoiser if run.part == refiner.denoiser else f"refiner_{run.part}"
        after.append(dataclasses.replace(run, name=f"refiner_{run.name}", part=part, count=count))
    weights = {f"refiner_{name}": size for name, size in refiner.weight_bytes.items() if name != "vae_encoder"}
    return dataclasses.replace(
        base,
        runs=(*before, *after),
        weight_bytes={name: size for name, size in base.weight_bytes.items() if name != "vae_decoder"} | weights,
        scratch_bytes=max(base.scratch_bytes, refiner.scratch_bytes),
    )


def written_out(work: Work) -> Work:
    """Work whose attention is not fused: its scores pass the vector engine as any other value does."""
    scores = SCORE_PASSES * work.softmax_elements
    return dataclasses.replace(work, vector_elements=work.vector_elements + scores, softmax_elements=0.0)


def is_guided(pipeline: Pipeline, request: PictureRequest) -> bool:
    """Return whether guidance runs each step with the prompt and without, as one batch."""
    config = request.placed(pipeline, num_cores=1, halves_apart=False)
    counted = pipeline.calls(config, num_steps=request.num_inference_steps)
    rows = max((call.num_rows or 0 for call, _ in counted[pipeline.denoiser]), default=0)
    return rows > request.num_pictures
