"""Other weights for a compiled program: where they come from, and whether they are of the same architecture.

Nothing is bound here, so a refusal leaves a model as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ..core import Choice
from ..errors import WeightsError, refusal
from ..exporters.prepare import Prepared
from ..exporters.quantization import quantization_of, require_plain, require_readable, with_quantization
from ..exporters.request import structure_differences
from ..exporters.source import ModelSource, find_folder
from ..exporters.tensors import open_tensors, tensors_in_memory
from ..plain_json import parse_json
from ..weights import TensorSource

Weights: TypeAlias = str | Path | Mapping[str, torch.Tensor] | torch.nn.Module
"""A folder with safetensors or an id on the Hub, tensors by their names in the checkpoint, or a model."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedWeights:
    """Tensors that can be bound, and what a model says it was loaded from afterwards."""

    source: ModelSource
    """The folder of the weights, or what it was before where they have none."""
    tensors: Choice[TensorSource]
    """The tensors, and how they were opened."""


def open_weights(weights: Any, prepared: Prepared) -> OpenedWeights:
    """Find weights for a compiled model.

    Args:
        weights: what is called `Weights` here; anything else is refused.
        prepared: the compiled model.

    Raises:
        WeightsError: the configuration beside them is of another architecture, or they are none.
        ModelError: there is no such folder and no such id, or they are quantized in a way that cannot be dequantized.
    """
    if isinstance(weights, (str, Path)):
        return _of_folder(weights, prepared)
    name = type(weights).__name__
    if not isinstance(weights, (Mapping, torch.nn.Module)):
        raise WeightsError(
            refusal(
                asked=f"replace_weights({name})",
                found="neither a folder, a state dict nor a model",
                why="weights are found by their names in the checkpoint",
                do="pass a path, an id on the Hub, model.state_dict(), or the model",
            )
        )
    if isinstance(weights, torch.nn.Module):
        config = getattr(weights, "config", None)
        if config is not None and hasattr(config, "model_type"):
            require_plain(config, model=name)
            _refuse_other_architecture(config.to_dict(), prepared, name)
    names = {source for group in prepared.weight_sources.values() for source in group}
    tensors = tensors_in_memory(weights, names, f"a {name}")
    # Without a folder of their own, tokenizer and configuration stay those of the checkpoint before.
    plain = with_quantization(prepared.source.config, None)
    source = dataclasses.replace(prepared.source, name=name, revision=None, module=None, config=plain)
    return OpenedWeights(source=source, tensors=Choice(value=tensors, reason="a copy of those in memory"))


def _of_folder(weights: str | Path, prepared: Prepared) -> OpenedWeights:
    folder = find_folder(weights)
    config = _config_of(folder)
    quantization = None
    if config is not None:
        require_readable(config, model=str(weights))
        quantization = quantization_of(config)
        _refuse_other_architecture(config, prepared, str(folder))
    source = ModelSource(
        name=str(weights),
        folder=folder,
        config=with_quantization(prepared.source.config, quantization),
        revision=None,
    )
    tensors = open_tensors(
        source,
        prepared.weight_sources,
        task=prepared.config.task,
        family=prepared.family,
        dtype=prepared.config.torch_dtype,
    )
    return OpenedWeights(source=source, tensors=tensors)


def _config_of(folder: Path) -> dict[str, Any] | None:
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        return dict(parse_json(path.read_text()))
    except (ValueError, TypeError) as error:
        raise WeightsError(
            refusal(
                asked=f"binding the weights of {folder}",
                found=f"its config.json cannot be read ({error})",
                why="it says which architecture the weights are of",
                do="repair the file, or pass a folder with safetensors only",
            )
        ) from error


def _refuse_other_architecture(data: dict[str, Any], prepared: Prepared, name: str) -> None:
    """Weights of equal shapes can belong to other rotary frequencies, or to a model with biases."""
    config = prepared.source.config
    if data.get("model_type") != config.model_type:
        differences = [f"model_type={data.get('model_type')!r}, compiled with {config.model_type!r}"]
    else:
        differences = structure_differences(type(config).from_dict(data), config, prepared.config.task)
    if differences:
        raise WeightsError(
            refusal(
                asked=f"binding the weights of {name}",
                found="; ".join(differences),
                why="the program was compiled for another configuration",
                do="export this checkpoint instead",
            ),
            details={"problems": differences},
        )
