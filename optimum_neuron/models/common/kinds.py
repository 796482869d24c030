"""Equal layers of a decoder, found by comparing attributes, so that a capture need not run every layer.

What a layer of this package computes depends on its configuration, attributes, and submodules only. Where these cannot
be compared, for example with hooks of adapters, `compiler/record.py` compares the operators of the layers.

    layer_kinds(decoder.layers, decoder.config.layers)        # (0, 0, 0, 0): four equal layers
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import nn

_OF_TORCH = frozenset(vars(nn.Module()))
"""Attributes that every module has: submodules, tensors, hooks."""


def layer_kinds(layers: Iterable[nn.Module], configs: Sequence[Hashable]) -> tuple[int, ...] | None:
    """Return for each layer the first one that is equal to it; None if the layers cannot be compared.

    Args:
        configs: what a decoder passes to each of them depends on this.
    """
    outer: list[Any] = []
    inner: list[Any] = []
    for layer, config in zip(layers, configs, strict=True):
        modules = list(layer.named_modules())
        own = [{name: value for name, value in vars(each).items() if name not in _OF_TORCH} for _, each in modules]
        if any(_is_opaque(each) for _, each in modules) or any(_has_tensor(values) for values in own):
            return None
        tensors = (*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False))
        shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors)
        outer.append((config, tuple((path, type(each)) for path, each in modules), shapes))
        inner.append(own)
    firsts = tuple(map(outer.index, outer))
    # Equal objects may compare as different: then the operators of the layers decide.
    return firsts if all(inner[first] == inner[place] for place, first in enumerate(firsts)) else None


def _is_opaque(module: nn.Module) -> bool:
    """Return whether more than attributes decides what a module does: hooks, or values of computed buffers."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._non_persistent_buffers_set)


def _has_tensor(values: dict[str, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values.values())
