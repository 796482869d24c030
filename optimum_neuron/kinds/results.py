"""Results of transformers models as tensors by name, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def flatten(output: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of a transformers result by name; an element of a tuple is "hidden_states.0". Results that are nested
    are left out.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, value in output.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(part, torch.Tensor) for part in value):
            tensors |= {f"{name}.{index}": part for index, part in enumerate(value)}
    return tensors


def unflatten(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Inverse of `flatten`."""
    output: dict[str, Any] = {}
    for path, tensor in tensors.items():
        name, _, index = path.partition(".")
        output[name] = (*output.get(name, ()), tensor) if index else tensor
    return output
