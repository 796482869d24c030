"""Modules of a sentence-transformers folder that follow pooling: Dense, LayerNorm, Dropout, and Normalize.

They run on the host, in the order of `modules.json`, on vectors of width D; Legend: B batch, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import normalize

from ..errors import ModelError, WeightsError
from ..sources import SENTENCE_VECTORS, read_typed
from ..weights import Checkpoint

VECTOR_MODULES = ("Dense", "LayerNorm", "Dropout", "Normalize")
"""Types of modules that change vectors."""

_ACTIVATIONS = "torch.nn."
_VECTOR = "sentence_embedding"
Step = Callable[[torch.Tensor], torch.Tensor]
"""A function of vectors."""


def read_settings(folder: Path, kind: str, path: str) -> dict[str, Any]:
    """Return the settings of a module in a folder of sentence-transformers."""
    file = folder / path / "config.json"
    settings = read_typed(file, SENTENCE_VECTORS) if path and file.is_file() else {}
    for name in ("module_input_name", "module_output_name"):
        if settings.get(name) not in (None, _VECTOR):
            raise _unsupported(file, name, settings[name])
    activation = settings.get("activation_function")
    if kind == "Dense" and activation is not None and _activation(activation) is None:
        raise _unsupported(file, "activation_function", activation)
    return settings


def build_steps(folder: Path, modules: Sequence[tuple[str, str]]) -> list[Step]:
    """Return the functions of modules, given as type and path, with their weights."""
    return [_step(folder, kind, path) for kind, path in modules if kind != "Dropout"]


def _step(folder: Path, kind: str, path: str) -> Step:
    if kind == "Normalize":
        return lambda vectors_BD: normalize(vectors_BD, dim=-1)
    settings = read_settings(folder, kind, path)
    checkpoint = Checkpoint.open(folder / path)
    weights = {name: checkpoint.join([name])[0].float() for name in checkpoint.specs}
    _require_shapes(folder / path, weights, _shapes(kind, settings, weights))
    if kind == "LayerNorm":
        norm = nn.LayerNorm(len(weights["norm.weight"]))
        norm.load_state_dict({name.removeprefix("norm."): weight for name, weight in weights.items()})
        return norm.requires_grad_(False)
    return _Dense(settings, weights)


def _shapes(kind: str, settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> dict[str, list[int | None]]:
    """Return the shapes of a module's tensors; None for a size that its settings leave out."""
    if kind == "LayerNorm":
        return dict.fromkeys(("norm.weight", "norm.bias"), [settings.get("dimension")])
    num_outputs, num_inputs = settings.get("out_features"), settings.get("in_features")
    shapes: dict[str, list[int | None]] = {"linear.weight": [num_outputs, num_inputs]}
    optional: dict[str, list[int | None]] = {"linear.bias": [num_outputs], "residual.weight": [num_outputs, num_inputs]}
    return shapes | {name: shape for name, shape in optional.items() if name in weights}


def _require_shapes(folder: Path, weights: dict[str, torch.Tensor], shapes: dict[str, list[int | None]]) -> None:
    """Check the tensors of a module."""
    for name, shape in shapes.items():
        actual = list(weights[name].shape) if name in weights else None
        if (
            actual is None
            or len(actual) != len(shape)
            or any(b not in (None, a) for a, b in zip(actual, shape, strict=True))
        ):
            message = f"{name} in {folder} has the shape {actual} instead of {shape}."
            raise WeightsError(message, hint="Copy the folder again.", tensor=name, shape=actual, expected=shape)


class _Dense:
    """A linear layer, an activation, and the input itself if `use_residual`."""

    def __init__(self, settings: dict[str, Any], weights: dict[str, torch.Tensor]) -> None:
        self._weights = weights
        self._activation = _activation(settings.get("activation_function") or "torch.nn.Tanh")
        self._has_residual = bool(settings.get("use_residual"))

    def __call__(self, vectors_BD: torch.Tensor) -> torch.Tensor:
        assert self._activation is not None, "read_settings rejects others"
        weights = self._weights
        projected = nn.functional.linear(vectors_BD, weights["linear.weight"], weights.get("linear.bias"))
        result: torch.Tensor = self._activation(projected)
        if not self._has_residual:
            return result
        residual = weights.get("residual.weight")
        return result + (vectors_BD if residual is None else nn.functional.linear(vectors_BD, residual))


def _activation(name: str) -> nn.Module | None:
    """Return a module of torch by its path, or None if there is no such module without arguments."""
    module = getattr(nn, name.rpartition(".")[2], None) if name.startswith(_ACTIVATIONS) else None
    if not (isinstance(module, type) and issubclass(module, nn.Module)):
        return None
    try:
        return module().eval()
    except TypeError:
        return None


def _unsupported(file: Path, name: str, value: object) -> ModelError:
    hint = "Compile the transformer with NeuronModelForFeatureExtraction and apply the other modules yourself."
    return ModelError(f"{file} sets {name}={value!r}, which is not supported.", hint=hint, option=name, value=value)
