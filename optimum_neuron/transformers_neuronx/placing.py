"""Compile the decoder of a checkpoint, or load the one that a folder has: what `to_neuron` places on cores.

A checkpoint may be a folder that `save` wrote: its decoder is loaded, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from ..errors import ArtifactError
from ..exporters import is_export
from ..modeling import NeuronModelForCausalLM
from ..sources import find_folder
from .checkpoint import has_safetensors, read_module

_SAME = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
"""Fields in which a checkpoint and its artifacts must agree."""


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
        return _loaded(folder, config, options)
    if artifacts is not None:
        model = _loaded(artifacts, config, options)
        if folder is not None and has_safetensors(folder):
            model.replace_weights(folder)
        return model
    assert checkpoint is not None, "NeuronModelBase.to_neuron checks it"
    if has_safetensors(checkpoint):
        return NeuronModelForCausalLM.from_pretrained(checkpoint, config=config, export=True, **options)
    return NeuronModelForCausalLM.from_model(read_module(checkpoint, config), **options)


def _loaded(folder: Path, config: PretrainedConfig, options: Mapping[str, Any]) -> NeuronModelForCausalLM:
    """The decoder of a folder, if it was compiled with these options from a model like this one."""
    model = NeuronModelForCausalLM.from_pretrained(folder, export=False, **options)
    differences = [
        f"{name} {getattr(model.config, name, None)!r}, not {getattr(config, name, None)!r}"
        for name in _SAME
        if getattr(model.config, name, None) != getattr(config, name, None)
    ]
    if not differences:
        return model
    model.close()
    raise ArtifactError(
        f"{folder} was compiled from another model: {'; '.join(differences)}.",
        hint="Load the artifacts of this checkpoint, or call to_neuron without load.",
        folder=str(folder),
        differences=differences,
    )
