"""A request for pictures, complete and checked, and the cores that a replica of the pipeline takes.

pictures = picture_request(pipeline, EstimateRequest(num_inference_steps=20))
cores, halves_apart = choose_layout(pipeline, pictures, request, machine)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...base.core import Choice
from ...base.wording import counted
from ...compiler import MICROCODE_BYTES
from ...errors import ConfigError, invalid_choice
from ...kinds.diffusion import NeuronDiffusionConfig, is_shared, size_multiple, with_sizes
from ..machine import Machine, choose_cores, positive
from ..request import DTYPES, EstimateRequest, require_no_options
from .plan import PicturePlan, PictureRequest, is_guided, plan_pictures
from .source import Pipeline

ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a weight by dtype."""
MAX_STEPS = 1000
"""Steps of training; more are taken for a slip."""
MAX_PIXELS = 4096
"""Along an axis."""


def picture_request(pipeline: Pipeline, request: EstimateRequest) -> PictureRequest:
    """Fill in the defaults of the pipeline's class, and check every size."""
    _require_effect(pipeline, request)
    steps = request.num_inference_steps
    steps = pipeline.default("num_inference_steps") if steps is None else positive("num_inference_steps", steps)
    if steps is not None:
        steps = int(_number("num_inference_steps", steps, 1, MAX_STEPS))
    guidance = request.guidance_scale
    if guidance is not None:
        guidance = _number("guidance_scale", guidance, 0.0, 100.0)
    if pipeline.compiled is not None:
        height, width = max(pipeline.compiled.resolutions())
        config = dataclasses.replace(pipeline.compiled, height=height, width=width)
        return PictureRequest(config=config, num_inference_steps=steps)
    dtype: Any = DTYPES.get(request.dtype or "", request.dtype)
    dtype = dtype or ("bfloat16" if pipeline.denoiser == "transformer" else "float32")
    if dtype not in ELEMENT_BYTES:
        raise invalid_choice("dtype", dtype, ELEMENT_BYTES)
    bare = pipeline.bare(dtype)
    usual, sizes = with_sizes(NeuronDiffusionConfig(), bare), request.export
    height, width = (
        _pixels(name, sizes.get(name, getattr(usual, name)), size_multiple(bare)) for name in ("height", "width")
    )
    config = NeuronDiffusionConfig(
        batch_size=request.batch_size,
        height=height,
        width=width,
        guidance_scale=guidance,
        sequence_length=request.sequence_length and positive("sequence_length", request.sequence_length),
        num_frames=sizes.get("num_frames") and positive("num_frames", sizes["num_frames"]),
        torch_dtype=dtype,
        auto_cast=request.auto_cast or ("matmul" if dtype == "float32" else "none"),
    )
    return PictureRequest(config=config, num_inference_steps=steps)


def _require_effect(pipeline: Pipeline, request: EstimateRequest) -> None:
    """Check that the options of a request have an effect on a pipeline."""
    without = {name for name in ("num_inference_steps", "guidance_scale") if not pipeline.takes(name)}
    if pipeline.compiled is not None:
        request.require_effect("pipeline", "a compiled pipeline", compiled=True, without=without)
        return
    if not pipeline.takes("max_sequence_length"):
        without.add("sequence_length")
    what = f"a {pipeline.class_name}"
    request.require_effect("pipeline", what, without=without)
    taken = ("height", "width", "num_frames") if pipeline.takes("num_frames") else ("height", "width")
    require_no_options({name: value for name, value in request.export.items() if name not in taken}, what)


def _number(name: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, (int, float)) and least <= value <= most:
        return float(value)
    message = f"{name}={value!r} is not a number from {least:g} to {most:g}."
    raise ConfigError(message, hint="Pass such a number, or remove it.", option=name, value=value)


def _pixels(name: str, pixels: int, multiple: int) -> int:
    if positive(name, pixels) % multiple == 0 and pixels <= MAX_PIXELS:
        return pixels
    message = f"{name}={pixels} is not a multiple of {multiple}, at most {MAX_PIXELS}."
    nearest = min(max(multiple, round(pixels / multiple) * multiple), MAX_PIXELS)
    details = {"option": name, "value": pixels, "multiple": multiple, "nearest": nearest}
    raise ConfigError(message, hint=f"Pass {nearest}.", **details)


def choose_layout(
    pipeline: Pipeline, pictures: PictureRequest, request: EstimateRequest, machine: Machine
) -> tuple[Choice[int], bool]:
    """Cores of a replica, and whether the halves of guidance run on two of them."""
    denoiser, num_cores, mode = pipeline.denoiser, request.tensor_parallel_size, request.data_parallel_mode
    if pipeline.compiled is not None:
        return _compiled_layout(pipeline, pictures, machine)
    if mode not in (None, "none", denoiser):
        raise invalid_choice("data_parallel_mode", mode, ("none", denoiser))
    divisible = is_shared(getattr(pipeline.bare(pictures.config.torch_dtype), denoiser))
    if not divisible and num_cores not in (None, 1):
        message = f"tensor_parallel_size={num_cores} has no effect: cores do not share the {denoiser} of this pipeline."
        hint = f"Remove it; data_parallel_mode='{denoiser}' uses two cores, data_parallel_size more replicas."
        raise ConfigError(message, hint=hint, option="tensor_parallel_size", value=num_cores)

    may = mode != "none" and machine.num_logical_cores >= 2 and num_cores in (None, 1)
    apart = may and is_guided(pipeline, pictures)

    def fits(count: int) -> bool:
        if sum(weight_memory(pipeline, pictures, count).values()) > machine.hbm_bytes_per_core:
            return False  # before seconds are spent on captures
        plan = plan_pictures(pipeline, pictures, num_cores=count, halves_apart=apart and count == 1)
        return sum(plan_memory(plan, machine).values()) <= machine.hbm_bytes_per_core

    if mode == denoiser and not apart:
        message = f"data_parallel_mode={mode!r} needs steps with guidance and two cores."
        raise ConfigError(message, hint="Remove it.", option="data_parallel_mode", value=mode)
    if apart and (not divisible or fits(1)):
        reason = "the two halves of guidance on a core each, as in published measurements"
        return Choice(value=2, reason=reason if mode is None else f"data_parallel_mode={mode!r}"), True
    if not divisible:
        return Choice(value=1, reason=f"cores do not share the {denoiser}"), False
    return choose_cores(machine, num_cores, fits), False


def _compiled_layout(pipeline: Pipeline, pictures: PictureRequest, machine: Machine) -> tuple[Choice[int], bool]:
    config = pipeline.compiled
    if config.tensor_parallel_size > 1:
        choose_cores(machine, config.tensor_parallel_size, lambda count: True)  # legal on this instance
        reason = f"compiled for {counted(config.tensor_parallel_size, 'core')}"
        return Choice(value=config.tensor_parallel_size, reason=reason), False
    if config.data_parallel_mode in (pipeline.denoiser, "all") and is_guided(pipeline, pictures):
        return Choice(value=2, reason=f"compiled with data_parallel_mode={config.data_parallel_mode!r}"), True
    return Choice(value=1, reason="compiled for 1 core"), False


def weight_memory(pipeline: Pipeline, pictures: PictureRequest, num_cores: int) -> dict[str, int]:
    """Weights of one core by component, without the autoencoder, of which only a half may run."""
    names = [name for name in pipeline.sources if name != "vae"]
    return {name: pipeline.weight_bytes(name, pictures.config.torch_dtype, num_cores) for name in names}


def plan_memory(plan: PicturePlan, machine: Machine) -> dict[str, int]:
    """HBM of the fullest core, which has every component or its share of it; one component runs at a time."""
    return {
        **plan.weight_bytes,
        "scratch": plan.scratch_bytes,
        "code": MICROCODE_BYTES * machine.rates.num_physical,
    }
