"""What a training step would take on the simulated instance, for the log. Every number is simulated.

The numbers are `optimum_neuron.simulator.estimate_training`'s, for the whole instance in bfloat16; nothing is estimated
here.

    >>> from transformers import LlamaConfig
    >>> from optimum_neuron.trainer.estimates import StepRequest, log_entries
    >>> config = LlamaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=1408)
    >>> sorted(log_entries(config, StepRequest(instance="trn1.32xlarge", batch_size=256, num_tokens=512)))[0]
    'neuron/est_mfu'
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from ..errors import ConfigError, refusal

logger = logging.getLogger(__name__)

_NAMES = ("step_ms", "mfu", "tokens_per_s", "usd_per_1m_tokens")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepRequest:
    """What is estimated."""

    instance: str
    """Instance."""
    batch_size: int
    """Sequences of a step, of all processes."""
    num_tokens: int
    """Tokens of a sequence."""
    micro_batch_size: int = 1
    """Sequences of one forward and backward."""
    tensor_parallel_size: int = 1
    """Cores that share a layer."""
    pipeline_parallel_size: int = 1
    """Stages."""
    zero_1: bool = False
    """Optimizer states are split over the copies."""
    gradient_checkpointing: bool = False
    """Activations are computed again in the backward."""
    optimizer_use_master_weights: bool = True
    """Float32 weights beside the 16-bit ones."""


def log_entries(config: Any, request: StepRequest) -> dict[str, float]:
    """Entries of the log, each named an estimate. The assumptions are logged too, so ask once.

    Args:
        config: transformers configuration of a decoder.
        request: the step.

    Raises:
        NeuronError: the simulator cannot tell, and why.
    """
    from ..simulator import estimate_training

    options = dataclasses.asdict(request)
    told = estimate_training(config, sequence_length=options.pop("num_tokens"), **options)
    logger.warning(
        "neuron/est_* are simulated, for all of %s (%s): %s",
        told.instance.value,
        told.layout.value,
        "; ".join((*told.assumptions, *told.notes)),
    )
    return {f"neuron/est_{name}": told.quantities[name].value for name in _NAMES if name in told.quantities}


def require_whole_model(model: Any) -> None:
    """Refuse estimates for an adapter.

    Raises:
        ConfigError: only some weights are trained.
    """
    if not hasattr(model, "peft_config"):
        return
    raise ConfigError(
        refusal(
            asked="enable_mfu_metrics with an adapter",
            found=f"{type(model).__name__}",
            why="the simulator knows the time of steps that train every weight",
            do="leave it out",
        )
    )
