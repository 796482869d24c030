"""Projections and embeddings with quantized weights: `values`, `scale`, and `zero` of `weights/schemes.py`.

`models/quantize.py` turns modules into these in place, so that hooks of tensor parallelism stay.

Shape legend: I inputs, O outputs, V vocabulary, D hidden.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...compiler import DYNAMIC_LINEAR, QUANTIZED_LINEAR
from ...weights import dequantize


class QuantizedLinear(nn.Linear):
    """A linear layer whose weight has a scale for each output, or for each group of inputs of an output.

    Code that reads its weight, as Mamba's does, gets it dequantized.
    """

    @property
    def weight(self) -> torch.Tensor:
        """The weight as it was before, but for rounding."""
        scale_OG = self._parameters["weight_scale"]
        plain_OI = dequantize(numbers_of(self), scale_OG, self._parameters.get("weight_zero"))
        return plain_OI.to(self.plain_dtype)

    def forward(self, x_I: torch.Tensor) -> torch.Tensor:
        return quantized_product(x_I, self)


class QuantizedEmbedding(nn.Embedding):
    """An embedding with a scale for each row, such as one that is also the head."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return embedded(self, ids)


def is_quantized(module: nn.Module) -> bool:
    """Return whether the weight of a module is quantized."""
    return "weight_scale" in module._parameters


def numbers_of(module: nn.Module) -> Any:
    """Return the stored numbers of a quantized weight."""
    return module._parameters["weight"]


def operand_dtype(module: nn.Module) -> torch.dtype:
    """Return the dtype of what a projection multiplies: that of its weight before it was quantized."""
    return module.plain_dtype if is_quantized(module) else module.weight.dtype


def quantized_product(x_I: torch.Tensor, linear: nn.Module) -> torch.Tensor:
    """Multiply by a quantized weight, in the dtype of `x_I`, which is quantized too if the layer says so."""
    if linear.is_dynamic:
        return DYNAMIC_LINEAR(x_I, numbers_of(linear), linear.weight_scale, linear.bias)
    zero = linear._parameters.get("weight_zero")
    return QUANTIZED_LINEAR(x_I, numbers_of(linear), linear.weight_scale, zero, linear.bias)


def embedded(embedding: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Return the embeddings of tokens, whose weight may be quantized to 8 bits by rows or groups of a row."""
    rows_D = F.embedding(ids, embedding.weight, embedding.padding_idx)
    if not is_quantized(embedding):
        return rows_D
    scale_G = F.embedding(ids, embedding.weight_scale)
    if scale_G.shape[-1] == 1:
        return (rows_D.float() * scale_G).to(embedding.plain_dtype)
    rows_GD = rows_D.float().unflatten(-1, (scale_G.shape[-1], -1))
    return (rows_GD * scale_G[..., None]).flatten(-2).to(embedding.plain_dtype)


def expert_parts(experts: nn.Module, name: str) -> tuple[torch.Tensor | None, ...] | None:
    """Return values, scales, and zero points of a weight of experts, or None if it is plain."""
    scale = getattr(experts, f"{name}_scale", None)
    return None if scale is None else (getattr(experts, name), scale, getattr(experts, f"{name}_zero", None))
