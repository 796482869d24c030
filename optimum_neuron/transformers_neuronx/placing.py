"""Compile the decoder of a checkpoint, or load the one that a folder has: what `to_neuron` places on cores.

A checkpoint may be a folder that `save` wrote: its decoder is loaded, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from ..errors import ConfigError
from ..modeling import NeuronModelForCausalLM, compile_with_warning, hidden_layers_of, load_artifacts
from ..options.configuration import is_export
from ..sources import find_folder
from .checkpoint import has_safetensors, read_module


def placed(
    checkpoint: str | Path | None, artifacts: Path | None, config: PretrainedConfig, options: Mapping[str, Any]
) -> NeuronModelForCausalLM:
    """Return the decoder of a checkpoint on simulated cores.

    Args:
        checkpoint: the weights; None: those of `artifacts`.
        artifacts: folder of a compiled decoder; None: compile, unless the checkpoint is one.
        config: configuration of the checkpoint.
        options: keywords of `NeuronModelForCausalLM.from_pretrained`.
    """
    folder = None if checkpoint is None else find_folder(checkpoint)
    if folder is not None and is_export(folder):
        return NeuronModelForCausalLM.from_pretrained(folder, config, export=False, **options)
    if artifacts is not None and folder is not None:
        weights = folder if has_safetensors(folder) else read_module(folder, config)
        return load_artifacts(NeuronModelForCausalLM, artifacts, folder, config, weights, options)
    if artifacts is not None:
        return NeuronModelForCausalLM.from_pretrained(artifacts, config, export=False, **options)
    assert checkpoint is not None, "NeuronModelBase.to_neuron checks it"
    if has_safetensors(checkpoint):
        compile = NeuronModelForCausalLM.from_pretrained
        return compile_with_warning(compile, checkpoint, config, export=True, **options)
    return compile_with_warning(NeuronModelForCausalLM.from_model, read_module(checkpoint, config), **options)


def require_eagle_draft(checkpoint: str | Path, config: PretrainedConfig) -> None:
    """Check that a checkpoint is an EAGLE draft of the first generation, which is all that upstream has."""
    num_layers = config.num_hidden_layers
    if hidden_layers_of(find_folder(checkpoint), num_layers) != (num_layers,):
        raise ConfigError(
            f"is_eagle_draft=True, but {checkpoint} has no tensors of an EAGLE draft of the first generation.",
            hint="Pass such a draft; neuronx_distributed_inference has EAGLE-3 (is_eagle3=True).",
            option="is_eagle_draft",
            path=str(checkpoint),
        )
