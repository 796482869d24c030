"""How a training run is spread over cores: `TrainingNeuronConfig`, which scripts know as `trn_config`.

It knows nothing of processes or tensors. Layouts that cannot be run are refused by name.

    >>> from optimum_neuron.trainer.layout import TrainingNeuronConfig
    >>> TrainingNeuronConfig().problems()
    []
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import InitVar
from typing import Any

from ..errors import refusal
from .peer_arguments import WITHOUT_EFFECT

logger = logging.getLogger(__name__)

_NO_EFFECT = {
    **WITHOUT_EFFECT,
    "checkpoint_dir": "from_pretrained and resume_from_checkpoint name the checkpoint",
    "transpose_nki_inputs": "attention is transformers' own, whatever the layout of its inputs",
}


_INIT_ONLY = (
    *("async_save", "checkpoint_dir", "fuse_qkv", "kv_size_multiplier", "num_local_ranks_per_step"),
    *("recompute_causal_mask", "transpose_nki_inputs", "use_xser"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingNeuronConfig:
    """The layout of one training run, under the names of the peer's `trn_config`.

    Arguments about the device's memory layout and about files change nothing here, and are reported by one INFO line.
    """

    tensor_parallel_size: int = 1
    """Cores that share each layer."""
    sequence_parallel_enabled: bool = False
    """Whether activations between tensor-parallel regions are split along the sequence."""
    pipeline_parallel_size: int = 1
    """Cores that have different layers."""
    pipeline_parallel_num_microbatches: int = -1
    """Parts that a batch is cut into for the pipeline; -1: chosen."""
    pipeline_parallel_use_zero1_optimizer: bool = False
    """Whether optimizer states are split over data-parallel processes (ZeRO-1)."""
    context_parallel_size: int = 1
    """Cores that share each sequence."""
    fsdp: bool = False
    """Whether data-parallel processes split weights, gradients and optimizer states (FSDP2)."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass."""
    virtual_pipeline_parallel_size: int = 1
    """Stages of one core; 1 is supported."""
    async_save: InitVar[bool | None] = None
    checkpoint_dir: InitVar[Any] = None
    fuse_qkv: InitVar[bool | None] = None
    kv_size_multiplier: InitVar[int | None] = None
    num_local_ranks_per_step: InitVar[int | None] = None
    recompute_causal_mask: InitVar[bool | None] = None
    transpose_nki_inputs: InitVar[bool | None] = None
    use_xser: InitVar[bool | None] = None

    def __post_init__(self, *without_effect: Any) -> None:
        for name, value in zip(_INIT_ONLY, without_effect, strict=True):
            if value is not None:
                logger.info("%s=%r changes nothing: %s.", name, value, _NO_EFFECT[name])

    def problems(self) -> list[str]:
        """Refusals of what cannot be run, one for each field."""
        problems = []
        if self.virtual_pipeline_parallel_size != 1:
            problems.append(
                refusal(
                    asked=f"virtual_pipeline_parallel_size={self.virtual_pipeline_parallel_size}",
                    found="a schedule that interleaves stages",
                    why="a core has one stage of the pipeline",
                    do="leave it out",
                )
            )
        if self.sequence_parallel_enabled and self.tensor_parallel_size == 1:
            problems.append(
                refusal(
                    asked="sequence_parallel=True",
                    found="tensor_parallel_size=1",
                    why="tokens are divided between the cores that share layers",
                    do="pass tensor_parallel_size, or leave it out",
                )
            )
        if self.pipeline_parallel_num_microbatches != -1 and self.pipeline_parallel_size == 1:
            problems.append(
                refusal(
                    asked=f"pipeline_parallel_num_microbatches={self.pipeline_parallel_num_microbatches}",
                    found="pipeline_parallel_size=1",
                    why="batches are cut into parts for the stages of a pipeline only",
                    do="pass pipeline_parallel_size, or leave it out; gradient_accumulation_steps saves memory too",
                )
            )
        return problems

    @property
    def spreads_model(self) -> bool:
        """Whether a core has less than the whole model, its batch or its optimizer."""
        sizes = self.tensor_parallel_size, self.pipeline_parallel_size, self.context_parallel_size
        return self.pipeline_parallel_use_zero1_optimizer or max(sizes) > 1


def combination_problems(layout: TrainingNeuronConfig, arguments: Any) -> list[str]:
    """Refusals of other arguments beside a layout that spreads the model.

    Args:
        layout: of the run.
        arguments: upstream's `TrainingArguments`.
    """
    if not layout.spreads_model:
        return []
    problems = []
    if arguments.use_cpu:
        problems.append(
            refusal(
                asked="use_cpu with tensor_parallel_size, pipeline_parallel_size, context_parallel_size or zero_1",
                found="two that exclude each other",
                why="parts live on simulated cores",
                do="leave one of them out",
            )
        )
    if layout.context_parallel_size > 1 and arguments.enable_mfu_metrics:
        problems.append(
            refusal(
                asked=f"enable_mfu_metrics with context_parallel_size={layout.context_parallel_size}",
                found="a layout that the simulator has no times for",
                why="its training steps divide layers, stages and batches, no sequences",
                do="leave one of them out",
            )
        )
    if layout.fsdp and layout.pipeline_parallel_use_zero1_optimizer:
        problems.append(
            refusal(
                asked="fsdp=True with zero_1=True",
                found="two ways to split optimizer states",
                why="fsdp splits them, gradients and weights; zero_1 keeps the weights whole",
                do="leave one of them out",
            )
        )
    return problems


def fsdp_problems(settings: Mapping[str, Any]) -> list[str]:
    """Refusals of `fsdp_config` where this package splits the parameters, and not accelerate.

    Args:
        settings: as `TrainingArguments` has normalized them.
    """
    as_usual = {"state_dict_type": "FULL_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "version": 2}
    unread = [
        f"{name}={value}"
        for name, value in settings.items()
        if value and name != "reshard_after_forward" and as_usual.get(name) != value
    ]
    if not unread:
        return []
    return [
        refusal(
            asked=f"fsdp_config with {', '.join(unread)}",
            found="fsdp beside another layout, or of a model in 16 bits",
            why="these settings are accelerate's, which splits models in float32 that are data parallel alone",
            do="leave them out (gradient_checkpointing=True saves activations); reshard_after_forward is read",
        )
    ]
