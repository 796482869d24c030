"""Open other weights for a compiled program, and check that they are of the same architecture.

Weights are bound elsewhere, so an error leaves the model unchanged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ..base.core import Choice
from ..base.foreign import module_facts
from ..errors import WeightsError
from ..exporters import Prepared, structure_differences
from ..files.plain_json import parse_json
from ..runtime import Copies
from ..sources import (
    ModelSource,
    find_folder,
    open_tensors,
    quantization_of,
    require_plain,
    require_readable,
    require_sizes,
    tensors_in_memory,
    unreadable_errors,
    with_quantization,
)
from ..weights import TensorSource

Weights: TypeAlias = str | Path | Mapping[str, torch.Tensor] | torch.nn.Module
"""A folder with safetensors, a Hub model ID, tensors by their names in the checkpoint, or a model."""


def open_weights(weights: object, prepared: Prepared) -> tuple[ModelSource, Choice[TensorSource]]:
    """Open weights for a compiled model; return its new source, and the tensors."""
    if isinstance(weights, (str, Path)):
        return _of_folder(weights, prepared)
    name = type(weights).__name__
    if not isinstance(weights, (Mapping, torch.nn.Module)):
        message = f"replace_weights takes a folder, a state dict, or a model, not a {name}."
        raise WeightsError(message, hint="Pass a path, a Hub model ID, model.state_dict(), or the model.", type=name)
    if isinstance(weights, torch.nn.Module):
        config = module_facts(weights).config
        if config is not None and hasattr(config, "model_type"):
            require_plain(config, model=name)
            _refuse_other_architecture(config.to_dict(), prepared, name)
    names = {source for group in prepared.weight_sources.values() for source in group}
    tensors = tensors_in_memory(weights, names, f"a {name}")
    # Weights in memory have no folder: tokenizer and configuration stay those of the previous checkpoint.
    plain = with_quantization(prepared.source.config, None)
    source = dataclasses.replace(prepared.source, name=name, revision=None, module=None, config=plain)
    return source, Choice(value=tensors, reason="copied from memory")


def rebound(prepared: Prepared, copies: Copies, weights: Weights) -> Prepared:
    """Give every copy of a program other weights; return the model that has them."""
    for loaded in copies.loaded:
        loaded.require_open()
    source, tensors = open_weights(weights, prepared)
    assert prepared.bound is not None
    replacement = prepared.artifact.bind(tensors.value)
    # Adapters stay loaded: no checkpoint has the weights that they are written to.
    sources, bound_before = prepared.weight_sources, prepared.bound.weights.tensors
    kept = {name: tensor for name, tensor in bound_before.items() if not sources[name.partition("@")[0]]}
    replacement = dataclasses.replace(replacement, tensors=replacement.tensors | kept)
    bound = dataclasses.replace(prepared.bound, tensors=tensors, weights=replacement)
    for loaded in copies.loaded:
        loaded.bind(bound.host, replacement.tensors)
    validated = Choice(value="off", reason="other weights were compared")
    return dataclasses.replace(prepared, bound=bound, source=source, validation=(), validated=validated)


def _of_folder(weights: str | Path, prepared: Prepared) -> tuple[ModelSource, Choice[TensorSource]]:
    folder = find_folder(weights)
    config = _config_of(folder)
    quantization = None
    if config is not None:
        require_readable(config, model=str(weights))
        quantization = quantization_of(config)
        _refuse_other_architecture(config, prepared, str(folder))
    plain = with_quantization(prepared.source.config, quantization)
    source = ModelSource(name=str(weights), folder=folder, config=plain, revision=None)
    task, dtype = prepared.config.task, prepared.config.torch_dtype
    return source, open_tensors(source, prepared.weight_sources, task=task, dtype=dtype)


def refuse_other_base(base: str | None, prepared: Prepared, adapter: str) -> None:
    """Check the model that an adapter was trained on, if it is a folder on this machine."""
    config = _config_of(Path(base)) if base else None
    if config is not None:
        _refuse_other_architecture(config, prepared, f"{base}, on which {adapter} was trained,")


def _config_of(folder: Path) -> dict[str, Any] | None:
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        data = dict(parse_json(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        message = f"{path} cannot be read ({error})."
        hint = "Repair the file, or pass a folder with safetensors only."
        raise WeightsError(message, hint=hint, file=str(path)) from error
    require_sizes(data, path)
    return data


def _refuse_other_architecture(data: dict[str, Any], prepared: Prepared, name: str) -> None:
    """Raise `WeightsError` for another configuration, as weights of equal shapes may need, say, other frequencies."""
    config = prepared.source.config
    model_type = data.get("model_type", data.get("_class_name"))
    if model_type != config.model_type:
        differences = [f"model_type={model_type!r}, compiled with {config.model_type!r}"]
    else:
        try:
            other = type(config).from_dict(data)
        except unreadable_errors() as error:
            message = f"transformers cannot read the configuration of {name} ({type(error).__name__}: {error})."
            raise WeightsError(message, hint="Repair the file.", origin=name) from error
        differences = structure_differences(other, config, prepared.config.task)
    if differences:
        message = f"The configuration of {name} differs from the compiled one: {'; '.join(differences)}."
        raise WeightsError(message, hint="Export this checkpoint instead.", problems=differences)
