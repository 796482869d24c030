"""A request for pictures, complete and checked, and the cores that a replica of the pipeline takes.

pictures = picture_request(pipeline, request, {"num_inference_steps": 20})
cores, halves_apart = choose_layout(pipeline, pictures, request, machine, mode=None)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...compiler import MICROCODE_BYTES
from ...core import Choice
from ...errors import ConfigError, invalid_choice
from ...options import check_known
from ..decoders import DTYPES, DecoderRequest
from ..machine import Machine, choose_cores, positive
from .modules import completed_config, parameter_bytes
from .plan import CLIP_TOKENS, DIVIDED, ELEMENT_BYTES, PicturePlan, PictureRequest, plan_pictures, scale_of
from .source import Pipeline

OPTIONS = ("height", "width", "num_inference_steps", "guidance_scale", "data_parallel_mode")
"""Keywords of an estimate that diffusion pipelines have."""
DEFAULT_SAMPLE = 128
"""Latents along an axis, where a configuration does not say: 1024 pixels."""
MAX_STEPS = 1000
"""Steps of training; more are taken for a slip."""
MAX_PIXELS = 4096
"""Along an axis."""


def picture_request(pipeline: Pipeline, request: DecoderRequest, options: Mapping[str, Any]) -> PictureRequest:
    """Fill in the defaults of the pipeline's class, and check every size.

    Raises:
        ConfigError: an option is unknown, out of range, or one of other models.
    """
    check_known(dict(options), list(OPTIONS), what="the estimate of a diffusion pipeline")
    options = {name: value for name, value in options.items() if value is not None}
    _require_options_of_pipelines(pipeline, request)
    scale, denoiser = scale_of(pipeline), completed_config(pipeline.denoiser)
    sample = denoiser.get("sample_size") or DEFAULT_SAMPLE
    usual = (sample, sample) if isinstance(sample, int) else sample
    multiple = scale * _halvings(pipeline)
    height, width = (
        _pixels(name, options.get(name, scale * usual[axis]), multiple) for axis, name in enumerate(("height", "width"))
    )
    guidance = _number("guidance_scale", options.get("guidance_scale", pipeline.kind.guidance_scale), 0.0, 100.0)
    steps = options.get("num_inference_steps", pipeline.kind.num_inference_steps)
    embedded = bool(denoiser.get("time_cond_proj_dim"))
    dtype = DTYPES.get(request.dtype or "", request.dtype)
    dtype = dtype or ("float32" if pipeline.denoiser_name == "unet" else "bfloat16")
    if dtype not in ELEMENT_BYTES:
        raise invalid_choice("dtype", dtype, ELEMENT_BYTES)
    return PictureRequest(
        batch_size=positive("batch_size", request.batch_size),
        height=height,
        width=width,
        num_inference_steps=int(_number("num_inference_steps", positive("num_inference_steps", steps), 1, MAX_STEPS)),
        guided=guidance > 1 and pipeline.kind.doubles and not embedded,
        text_tokens=positive("sequence_length", request.sequence_length or pipeline.kind.text_tokens),
        dtype=dtype,
        auto_cast=request.auto_cast or ("matmul" if dtype == "float32" else "none"),
    )


def _require_options_of_pipelines(pipeline: Pipeline, request: DecoderRequest) -> None:
    names = (
        *("input_length", "output_length", "concurrency", "batches_in_flight", "prefix_hit_rate"),
        *("sdk", "stack", "speculation"),
    )
    if others := [name for name in names if getattr(request, name) is not None]:
        message = f"{', '.join(others)} has no effect on a {pipeline.class_name}."
        raise ConfigError(message, hint=f"Remove it; a pipeline has {', '.join(OPTIONS)}.", options=others)
    if request.sequence_length is not None and not pipeline.has_t5:
        message = f"sequence_length has no effect on a {pipeline.class_name}: CLIP reads {CLIP_TOKENS} tokens."
        raise ConfigError(message, hint="Remove it.", option="sequence_length", value=request.sequence_length)


def _halvings(pipeline: Pipeline) -> int:
    """Latents along an axis that end as one: in the smallest block of a U-Net, in a patch of a transformer."""
    if pipeline.denoiser_name == "transformer":
        return 2
    return int(2 ** (len(completed_config(pipeline.denoiser)["block_out_channels"]) - 1))


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
    raise ConfigError(message, hint=f"Pass {nearest}.", option=name, value=pixels)


def choose_layout(
    pipeline: Pipeline, pictures: PictureRequest, request: DecoderRequest, machine: Machine, mode: str | None
) -> tuple[Choice[int], bool]:
    """Cores of a replica, and whether the halves of guidance run on two of them."""
    denoiser, num_cores = pipeline.denoiser_name, request.tensor_parallel_size
    if mode not in (None, "none", denoiser):
        raise invalid_choice("data_parallel_mode", mode, ("none", denoiser))
    if denoiser == "unet" and num_cores not in (None, 1):
        message = f"tensor_parallel_size={num_cores} has no effect on a U-Net: only diffusion transformers are split."
        hint = "Remove it; data_parallel_mode='unet' uses two cores, data_parallel_size more replicas."
        raise ConfigError(message, hint=hint, option="tensor_parallel_size", value=num_cores)

    apart = pictures.guided and mode != "none" and machine.num_logical_cores >= 2 and num_cores in (None, 1)

    def fits(count: int) -> bool:
        if sum(weight_memory(pipeline, pictures, count).values()) > machine.hbm_bytes_per_core:
            return False  # before seconds are spent on captures
        plan = plan_pictures(pipeline, pictures, num_cores=count, halves_apart=apart and count == 1)
        return sum(plan_memory(plan, machine).values()) <= machine.hbm_bytes_per_core

    if mode == denoiser and not apart:
        message = f"data_parallel_mode={mode!r} needs steps with guidance and two cores."
        raise ConfigError(message, hint="Remove it.", option="data_parallel_mode", value=mode)
    if apart and (denoiser == "unet" or fits(1)):
        reason = "the two halves of guidance on a core each, as in published measurements"
        return Choice(value=2, reason=reason if mode is None else f"data_parallel_mode={mode!r}"), True
    if denoiser == "unet":
        return Choice(value=1, reason="a U-Net runs on one core"), False
    return choose_cores(machine, num_cores, fits), False


def weight_memory(pipeline: Pipeline, pictures: PictureRequest, num_cores: int) -> dict[str, int]:
    """Weights of one core by component, without the autoencoder, of which only a half may run."""
    return {
        name: parameter_bytes(one, pictures.dtype, num_cores if name.startswith(DIVIDED) else 1)
        for name, one in pipeline.components.items()
        if name != "vae"
    }


def plan_memory(plan: PicturePlan, machine: Machine) -> dict[str, int]:
    """HBM of the fullest core, which has every component or its share of it; one component runs at a time."""
    return {
        **{run.name: run.weight_bytes for run in plan.runs},
        "scratch": max(run.scratch_bytes for run in plan.runs),
        "code": MICROCODE_BYTES * machine.rates.num_physical,
    }
