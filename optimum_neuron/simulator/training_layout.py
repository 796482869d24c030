"""Tensor, pipeline, and data parallelism of a training run, and the memory that it takes on a core.

choose_layout(sizes, request, machine, tensor=None, pipeline=None).value
"""

from __future__ import annotations

import dataclasses
import math

from ..base.core import Choice
from ..compiler import MICROCODE_BYTES
from ..errors import ConfigError
from ..hardware import legal_core_counts
from .machine import Machine, does_not_fit, positive, require_tensor_parallel_size
from .work import TrainedSizes, activation_bytes

GRADIENT_BYTES = 4
"""Bytes of a gradient, which is accumulated in float32."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingLayout:
    """Layout of training over cores: cores that share a layer, stages, and replicas."""

    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int

    def __str__(self) -> str:
        return f"TP={self.tensor_parallel} PP={self.pipeline_parallel} DP={self.data_parallel}"

    @property
    def num_cores(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Model and settings of a training run."""

    sequence_length: int
    batch_size: int
    """Sequences of a step, of all replicas together."""
    micro_batch_size: int
    """Sequences of one forward and backward."""
    zero_1: bool
    """Optimizer states are split over the copies."""
    checkpointing: bool
    """Activations of a layer are computed again in the backward."""
    master_weights: bool
    """The optimizer keeps float32 weights next to the 16-bit ones."""
    num_instances: int


def training_memory(sizes: TrainedSizes, request: TrainingRequest, layout: TrainingLayout, code: int) -> dict[str, int]:
    """HBM of one core: a stage keeps activations of as many microbatches as there are stages."""
    weights = math.ceil(sizes.num_parameters / (layout.tensor_parallel * layout.pipeline_parallel))
    copies = layout.data_parallel if request.zero_1 else 1
    states = math.ceil(weights * (8 + (4 if request.master_weights else 0)) / copies)
    tokens = request.micro_batch_size * request.sequence_length
    microbatch = activation_bytes(
        tokens=tokens,
        hidden=sizes.hidden,
        num_layers=math.ceil(sizes.num_layers / layout.pipeline_parallel),
        tensor_parallel=layout.tensor_parallel,
        checkpointing=request.checkpointing,
    )
    logits = tokens * math.ceil(sizes.num_logits / layout.tensor_parallel) * 4
    return {
        "weights": 2 * weights,
        "gradients": GRADIENT_BYTES * weights,
        "optimizer": states,
        "activations": layout.pipeline_parallel * microbatch + logits,
        "code": code,
    }


def _layouts(
    sizes: TrainedSizes, request: TrainingRequest, machine: Machine, tensor: int | None, pipeline: int | None
) -> list[TrainingLayout]:
    """Legal layouts, fewest cores for a replica first."""
    spec = machine.instance.value
    cores = machine.num_logical_cores * request.num_instances
    if tensor is not None:
        require_tensor_parallel_size(spec, tensor)
    tensors = legal_core_counts(spec).counts if tensor is None else (tensor,)
    stages = (1, 2, 4, 8, 16, 32) if pipeline is None else (positive("pipeline_parallel_size", pipeline),)
    layouts = [
        TrainingLayout(tensor_parallel=t, pipeline_parallel=p, data_parallel=cores // (t * p))
        for t in tensors
        for p in stages
        if sizes.num_heads % t == 0 and p <= sizes.num_layers and cores % (t * p) == 0
    ]
    return sorted(layouts, key=lambda one: (one.tensor_parallel * one.pipeline_parallel, one.pipeline_parallel))


def choose_layout(
    sizes: TrainedSizes, request: TrainingRequest, machine: Machine, tensor: int | None, pipeline: int | None
) -> Choice[TrainingLayout]:
    layouts = _layouts(sizes, request, machine, tensor, pipeline)
    if not layouts:
        num_cores = machine.num_logical_cores * request.num_instances
        sizes_given = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
        given = {name: value for name, value in sizes_given.items() if value is not None}
        text = " and ".join(f"{name}={value}" for name, value in given.items())
        message = f"{text} cannot divide {sizes.num_layers} layers of {sizes.num_heads} heads among {num_cores} cores."
        hint = "The tensor-parallel size divides the heads, and its product with the number of stages the cores."
        raise ConfigError(message, hint=hint, **given)
    code = MICROCODE_BYTES * machine.rates.num_physical
    for layout in layouts:
        memory = training_memory(sizes, request, layout, code)
        if sum(memory.values()) <= machine.hbm_bytes_per_core:
            named = tensor is not None and pipeline is not None
            return Choice(value=layout, reason="as asked" if named else "fewest cores for a replica whose memory fits")
    what = f"Training with {layouts[-1]} on {request.num_instances} x {machine.instance.value.name}"
    hint = "Take more instances, a shorter sequence_length or micro_batch_size=1, or leave the layout open."
    raise does_not_fit(what, training_memory(sizes, request, layouts[-1], code), machine, hint=hint)
