"""Estimate of a diffusion pipeline: a picture is its text encoders, every denoising step, and the decoder.

count_pipeline(pipeline, request, machine).estimate("sdxl", request, machine)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...base.core import Choice
from ...errors import ConfigError, DeviceMemoryError
from ...hardware import legal_core_counts
from ...sources import find_folder
from ..device_time import CoreRates, DeviceTime, device_time
from ..fitted import Constants, CoreConstants
from ..machine import Machine, choose_copies, does_not_fit
from ..request import EstimateRequest
from ..result import Estimate, generation_notes, largest, make_estimate, scale_of
from .plan import PicturePlan, PictureRequest, is_guided, plan_pictures, refined, written_out
from .request import choose_layout, picture_request, plan_memory, weight_memory
from .source import Pipeline, read_pipeline

DENOISING_END = 0.8
"""Share of the steps that the base model takes before a refiner, as in the published settings of SDXL."""
LOOP_HOST = "vllm"
"""Serving stack whose host time for each token a denoising step is taken to have: one call from a Python loop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureTimes:
    """Simulated times of a plan."""

    total_s: float
    device: Mapping[str, DeviceTime] = dataclasses.field(hash=False)
    """One run of each component on the device."""


def picture_times(
    plan: PicturePlan, rates: CoreRates, fitted: CoreConstants, constants: Constants, *, num_chips: int = 1
) -> PictureTimes:
    """Time a plan; cores of `num_chips` chips share a transformer."""
    device, total = {}, 0.0
    for run in plan.runs:
        work = written_out(run.graph.total)
        time = device_time(work, rates, fitted, decoder=False, tiled=True, num_chips=num_chips)
        host_s = work.host_bytes / constants.copy_bytes_per_s
        if run.part == plan.denoiser:
            host_s += constants.hosts[LOOP_HOST].token_ms * 1e-3
        device[run.name] = time
        total += run.count * (time.total_s + host_s)
    return PictureTimes(total_s=total, device=device)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PictureCounts:
    """The runs of a request to a pipeline, and the cores that share it."""

    pipeline: Pipeline
    pictures: PictureRequest
    plan: PicturePlan
    memory: Mapping[str, int]
    """HBM of a core by category."""
    num_cores: Choice[int]

    def estimate(self, name: str, request: EstimateRequest, machine: Machine) -> Estimate:
        """Time the request; replicas run on the other cores."""
        pipeline, pictures, plan, cores = self.pipeline, self.pictures, self.plan, self.num_cores
        chips = machine.num_chips(cores.value)
        times = picture_times(plan, machine.rates, machine.fitted, machine.constants, num_chips=chips)
        copies = choose_copies(machine, cores.value, request.data_parallel_size)
        rates, step, device = machine.rates, plan.step.graph.total, times.device[plan.step.name]
        kind = "diffusion-transformer" if pipeline.denoiser == "transformer" else "diffusion"
        total_s = scale_of(machine, kind, "latency_ms") * times.total_s
        per_s, limit = copies.value * pictures.num_pictures / total_s, device.limited_by
        return make_estimate(
            machine,
            name=name,
            kind=kind,
            values={
                "latency_ms": (total_s * 1e3, limit),
                "throughput_per_s": (per_s, limit),
                "hbm_bytes_per_core": (sum(self.memory.values()), largest(self.memory)),
                "hbm_bytes_per_step": (step.hbm_bytes, "weights"),
                "mfu": (step.product_flops / device.total_s / rates.peak_flops_per_s, limit),
                "mbu": (step.hbm_bytes / device.total_s / rates.hbm_bytes_per_s, limit),
            },
            per_s=per_s,
            num_cores=cores,
            num_copies=copies,
            memory=dict(self.memory),
            bounds_s={run.name: rates.least_s(run.graph.total) for run in plan.runs},
            parts_s={part: time.parts_s for part, time in times.device.items()},
            device_s={part: time.total_s for part, time in times.device.items()},
            assumptions=_assumptions(pipeline, pictures, plan, times, machine),
            notes=_notes(pipeline, machine),
        )


def count_pipeline(pipeline: Pipeline, request: EstimateRequest, machine: Machine) -> PictureCounts:
    """Count the runs of a request to a pipeline."""
    refiner, end = _refiner_of(request)
    pictures = picture_request(pipeline, request)
    num_steps = pictures.num_inference_steps
    num_refined = 0
    if refiner is not None and num_steps is not None:
        num_refined = num_steps - max(round(end * num_steps), 1)
        pictures = dataclasses.replace(pictures, num_inference_steps=num_steps - num_refined)
    cores, apart = choose_layout(pipeline, pictures, request, machine)
    sharing = 1 if apart else cores.value
    memory = weight_memory(pipeline, pictures, sharing)
    if sum(memory.values()) <= machine.hbm_bytes_per_core:
        plan = plan_pictures(pipeline, pictures, num_cores=sharing, halves_apart=apart)
        if refiner is not None:
            own = dataclasses.replace(pictures, num_inference_steps=num_steps)
            after = plan_pictures(refiner, own, num_cores=sharing, halves_apart=apart)
            plan = refined(plan, after, num_steps=num_refined)
        memory = plan_memory(plan, machine)
    if sum(memory.values()) > machine.hbm_bytes_per_core:
        raise _does_not_fit(pipeline, machine, cores.value, memory, pictures)
    return PictureCounts(pipeline=pipeline, pictures=pictures, plan=plan, memory=memory, num_cores=cores)


def _refiner_of(request: EstimateRequest) -> tuple[Pipeline | None, float]:
    """The refiner of a request, and the share of the steps before it."""
    model, end = request.refiner_model, request.denoising_end
    if model is None:
        if end is not None:
            message = f"denoising_end={end} has no effect without a refiner."
            raise ConfigError(message, hint="Pass refiner_model, or remove it.", option="denoising_end", value=end)
        return None, 1.0
    end = DENOISING_END if end is None else end
    if isinstance(end, bool) or not isinstance(end, (int, float)) or not 0 < end < 1:
        message = f"denoising_end={end!r} is not a share between 0 and 1."
        raise ConfigError(message, hint="Pass one such as 0.8.", option="denoising_end", value=end)
    return read_pipeline(find_folder(model, with_weights=False), name=str(model)), float(end)


def _does_not_fit(
    pipeline: Pipeline, machine: Machine, num_cores: int, memory: dict[str, int], pictures: PictureRequest
) -> DeviceMemoryError:
    instance = machine.instance.value
    if pictures.config.torch_dtype == "float32":
        hint = "Pass dtype='bfloat16'."
    elif pipeline.denoiser == "transformer" and num_cores < legal_core_counts(instance).counts[-1]:
        hint = "Leave tensor_parallel_size out: more cores share the transformer."
    else:
        hint = "Pass a smaller batch_size, height, or width, or take a larger instance."
    return does_not_fit(f"{pipeline.name} on {num_cores} cores of {instance.name}", memory, machine, hint=hint)


def _assumptions(
    pipeline: Pipeline, pictures: PictureRequest, plan: PicturePlan, times: PictureTimes, machine: Machine
) -> tuple[str, ...]:
    runs = ", ".join(f"{run.name} {run.count} x {times.device[run.name].total_s * 1e3:.4g} ms" for run in plan.runs)
    guidance = "each step runs once"
    if is_guided(pipeline, pictures):
        guidance = "with guidance: each step runs with the prompt and without"
    origin = "configurations" if pipeline.compiled is None else "compiled programs"
    return (
        f"pictures of {pictures.config.height} x {pictures.config.width} pixels, {pictures.num_pictures} together, "
        f"{plan.step.count} steps, {guidance}",
        f"on the device, one after the other: {runs}",
        f"attention is not fused; weights in {pictures.config.torch_dtype}, auto_cast {pictures.config.auto_cast}",
        f"counted from the {origin} of a {pipeline.class_name}; no weights were read",
        *machine.sources,
    )


def _notes(pipeline: Pipeline, machine: Machine) -> tuple[str, ...]:
    published = "diffusion: few published pipelines, left out of the fit"
    if pipeline.denoiser == "transformer":
        published = "diffusion transformers: nothing is published that was compared; the intervals are wide"
    return (published, *generation_notes(machine.target, "no published value of diffusion"))
