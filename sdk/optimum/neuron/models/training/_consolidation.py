"""Optimum Neuron's function that joins a checkpoint's shards, with its arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from optimum_neuron.distributed.consolidate import consolidate, read_joined
from optimum_neuron.errors import ConfigError

if TYPE_CHECKING:
    import torch


def consolidate_model_parallel_checkpoints(checkpoint_dir: str | Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint, joined from its shards; see `optimum_neuron.distributed.consolidate`.

    Raises:
        ArtifactError: the checkpoint has no weights.
    """
    return read_joined(checkpoint_dir)


def consolidate_model_parallel_checkpoints_to_unified_checkpoint(
    checkpoint_dir: str | Path, output_dir: str | Path, save_format: str = "safetensors"
) -> None:
    """Write the weights of a checkpoint as one file; see `optimum_neuron.distributed.consolidate`.

    Args:
        checkpoint_dir: the folder of a checkpoint.
        output_dir: where to write.
        save_format: "safetensors"; pickles are not written.

    Raises:
        ArtifactError: the checkpoint has no weights.
        ConfigError: another format.
    """
    if save_format != "safetensors":
        message = f"save_format={save_format!r} is not supported: weights are written as safetensors, not as pickles."
        raise ConfigError(
            message, hint="Leave it out.", option="save_format", value=save_format, allowed=["safetensors"]
        )
    consolidate(checkpoint_dir, output_dir)
