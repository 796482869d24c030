"""Estimates of a training step on the simulated instance, for the log. Every number is simulated.

The numbers are `optimum_neuron.simulator.estimate_training`'s, for the whole instance in bfloat16; nothing is estimated
here.

    >>> from transformers import LlamaConfig
    >>> from optimum_neuron.trainer.estimates import log_entries
    >>> config = LlamaConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=1408)
    >>> sorted(log_entries(config, instance="trn1.32xlarge", batch_size=256, sequence_length=512))[0]
    'neuron/est_mfu'
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer

logger = logging.getLogger(__name__)

_NAMES = ("step_ms", "mfu", "tokens_per_s", "usd_per_1m_tokens")


def step_options(trainer: Trainer) -> dict[str, Any]:
    """Return the options of `estimate_training` for the steps of a trainer."""
    from ..device import placement

    layout = trainer.args.trn_config
    return {
        "instance": placement.instance().name,
        "batch_size": trainer.get_total_train_batch_size(trainer.args),
        "micro_batch_size": trainer.args.per_device_train_batch_size,
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
        "gradient_checkpointing": layout.gradient_checkpointing,
        "optimizer_use_master_weights": trainer.args.optimizer_use_master_weights,
    }


def log_entries(config: PreTrainedConfig, **options: Any) -> dict[str, float]:
    """Return the entries of the log, each named an estimate, and log their assumptions."""
    from ..simulator import estimate_training

    estimate = estimate_training(config, **options)
    logger.warning(
        "neuron/est_* are simulated, for all of %s (%s): %s",
        estimate.instance.value,
        estimate.layout.value,
        "; ".join((*estimate.assumptions, *estimate.notes)),
    )
    return {f"neuron/est_{name}": estimate.quantities[name].value for name in _NAMES if name in estimate.quantities}


def require_whole_model(model: nn.Module) -> None:
    """Reject estimates for an adapter."""
    if hasattr(model, "peft_config"):
        message = "enable_mfu_metrics does not support adapters: the simulator estimates full fine-tuning."
        raise ConfigError(message, hint="Remove the option.", option="enable_mfu_metrics")
