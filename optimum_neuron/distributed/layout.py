"""Layout of a training run over cores: `TrainingNeuronConfig`, which scripts know as `trn_config`.

It does not depend on processes or tensors. Each layout that is not supported is an error that names its option.

    >>> from optimum_neuron.distributed.layout import TrainingNeuronConfig
    >>> TrainingNeuronConfig().problems()
    []
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import InitVar
from typing import Any

from ..base.transformers_types import TrainingArguments
from ..errors import ConfigError

logger = logging.getLogger(__name__)

WITHOUT_EFFECT = {
    "async_save": "a checkpoint is complete before training goes on",
    "checkpoint_dir": "from_pretrained and resume_from_checkpoint name the checkpoint",
    "fuse_qkv": "weights keep their layout, and results are the same",
    "kv_size_multiplier": "key heads are shared by the cores that need them, and results are the same",
    "num_local_ranks_per_step": "checkpoints are memory-mapped, so all processes load at once",
    "recompute_causal_mask": "masks are those of transformers",
    "transpose_nki_inputs": "attention is transformers' own, whatever the layout of its inputs",
    "use_xser": "checkpoints are safetensors or torch.distributed.checkpoint files",
}
"""Why an argument changes nothing, in the order of the class's arguments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingNeuronConfig:
    """The layout of one training run, under the names of the peer's `trn_config`.

    Arguments about the device's memory layout and about files change nothing here; each is reported by one INFO line.
    """

    tensor_parallel_size: int = 1
    """Cores that share each layer."""
    sequence_parallel_enabled: bool = False
    """Whether activations between tensor-parallel regions are split along the sequence."""
    pipeline_parallel_size: int = 1
    """Cores that have different layers."""
    pipeline_parallel_num_microbatches: int = -1
    """Microbatches of a pipeline; -1: chosen."""
    pipeline_parallel_use_zero1_optimizer: bool = False
    """Whether optimizer states are split over data-parallel processes (ZeRO-1)."""
    context_parallel_size: int = 1
    """Cores that share each sequence."""
    fsdp: bool = False
    """Whether data-parallel processes split weights, gradients, and optimizer states (FSDP2)."""
    gradient_checkpointing: bool = False
    """Whether the backward pass recomputes activations."""
    virtual_pipeline_parallel_size: int = 1
    """Stages of one core; only 1 is supported."""
    async_save: InitVar[bool | None] = None
    checkpoint_dir: InitVar[Any] = None
    fuse_qkv: InitVar[bool | None] = None
    kv_size_multiplier: InitVar[int | None] = None
    num_local_ranks_per_step: InitVar[int | None] = None
    recompute_causal_mask: InitVar[bool | None] = None
    transpose_nki_inputs: InitVar[bool | None] = None
    use_xser: InitVar[bool | None] = None

    def __post_init__(self, *without_effect: object) -> None:
        for (name, reason), value in zip(WITHOUT_EFFECT.items(), without_effect, strict=True):
            if value is not None:
                logger.info("%s=%r changes nothing: %s.", name, value, reason)
        if self.sequence_parallel_enabled and self.tensor_parallel_size == 1:
            logger.info("sequence_parallel=True changes nothing: tensor_parallel_size is 1.")

    def problems(self) -> list[ConfigError]:
        """Return one error for each option that is not supported."""
        problems = []
        if (num_stages := self.virtual_pipeline_parallel_size) != 1:
            message = f"virtual_pipeline_parallel_size={num_stages} is not supported: a core runs one pipeline stage."
            hint = "Remove the option."
            problems.append(ConfigError(message, hint=hint, option="virtual_pipeline_parallel_size", value=num_stages))
        if (num_parts := self.pipeline_parallel_num_microbatches) != -1 and self.pipeline_parallel_size == 1:
            option, hint = "pipeline_parallel_num_microbatches", "Pass it, or gradient_accumulation_steps instead."
            message = f"{option}={num_parts} needs pipeline_parallel_size above 1."
            problems.append(ConfigError(message, hint=hint, option=option, value=num_parts))
        return problems

    @property
    def spreads_model(self) -> bool:
        """Whether a core has less than the whole model, its batch, or its optimizer."""
        return self.pipeline_parallel_use_zero1_optimizer or any(size > 1 for size in self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """Return the numbers of cores that share a batch, by the name of their option."""
        return {
            "tensor_parallel_size": self.tensor_parallel_size,
            "pipeline_parallel_size": self.pipeline_parallel_size,
            "context_parallel_size": self.context_parallel_size,
        }


def conflict(*options: str, reason: str) -> ConfigError:
    """Return the error for options, as the user wrote them, that exclude each other."""
    return ConfigError(
        f"{' and '.join(options)} cannot be combined: {reason}.", hint="Remove one of them.", options=list(options)
    )


def combination_problems(layout: TrainingNeuronConfig, arguments: TrainingArguments) -> list[ConfigError]:
    """Return one error for each argument that does not go with a layout that spreads the model."""
    if not layout.spreads_model:
        return []
    problems = []
    if arguments.use_cpu:
        names = [name for name, size in layout.sizes().items() if size > 1] or ["zero_1"]
        problems.append(conflict("use_cpu", *names, reason="parts of a model live on simulated cores"))
    if layout.context_parallel_size > 1 and arguments.enable_mfu_metrics:
        reason = "the simulator has no step times for context parallelism"
        problems.append(conflict("enable_mfu_metrics", "context_parallel_size", reason=reason))
    if layout.fsdp and layout.pipeline_parallel_use_zero1_optimizer:
        problems.append(conflict("fsdp", "zero_1", reason="both split the optimizer states"))
    return problems


def require_fsdp_config(settings: Mapping[str, Any]) -> None:
    """Reject settings of `fsdp_config` where this package splits the parameters, and not accelerate."""
    defaults = {"state_dict_type": "FULL_STATE_DICT", "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "version": 2}
    unread = {
        name: value
        for name, value in settings.items()
        if value and name != "reshard_after_forward" and defaults.get(name) != value
    }
    if unread:
        names = ", ".join(f"{name}={value}" for name, value in unread.items())
        message = f"fsdp_config has {names}, which apply only to FSDP without another layout, in float32."
        hint = "Remove them (gradient_checkpointing=True saves activations); reshard_after_forward may stay."
        raise ConfigError(message, hint=hint, option="fsdp_config", settings=unread)
