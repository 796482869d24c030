"""How a training run is spread over cores: `TrainingNeuronConfig`, which scripts know as `trn_config`.

It knows nothing of processes or tensors. Layouts that this version cannot run are refused by name.

    >>> from optimum_neuron.trainer.layout import TrainingNeuronConfig
    >>> TrainingNeuronConfig().problems()
    []
"""

from __future__ import annotations

import dataclasses

from ..errors import refusal


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingNeuronConfig:
    """The layout of one training run, under the names of the peer's `trn_config`."""

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
    gradient_checkpointing: bool = False
    """Whether activations are computed again in the backward pass."""

    def problems(self) -> list[str]:
        """Refusals of what cannot be run, one for each field."""
        defaults = TrainingNeuronConfig()
        asked = {
            field: getattr(self, field) for field in _NOT_BUILT if getattr(self, field) != getattr(defaults, field)
        }
        return [
            refusal(
                asked=f"{_NOT_BUILT[field]}={value}",
                found="a layout that this version does not have",
                why="training runs on one core, or data parallel over several with torchrun",
                do=f"leave {_NOT_BUILT[field]} out",
            )
            for field, value in asked.items()
        ]


_NOT_BUILT = {
    "tensor_parallel_size": "tensor_parallel_size",
    "sequence_parallel_enabled": "sequence_parallel",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "pipeline_parallel_num_microbatches": "pipeline_parallel_num_microbatches",
    "pipeline_parallel_use_zero1_optimizer": "zero_1",
    "context_parallel_size": "context_parallel_size",
}
"""Fields of layouts that are refused, with the names that `NeuronTrainingArguments` gives them."""
