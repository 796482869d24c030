"""The matrix product with a quantized weight, as one operator of a graph.

TensorE multiplies the stored numbers, which are exact in bfloat16, by 16-bit activations and sums in float32; the sum
of each group is scaled when it leaves PSUM. A model that is quantized calls it in place of `linear`; host code has a
kernel for it (`lower/quantized`). `weights/schemes.py` defines the layout of the operands.

    torch.ops.neuron.quantized_linear(x, values, scale, zero, bias)
    torch.ops.neuron.dynamic_quantized_linear(x, values, scale, bias)

The second one quantizes activations too, each token with a scale of its own: small numbers are multiplied by small
numbers, and sums are scaled by both.

Shape legend: I inputs, O outputs, G groups of inputs.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..weights import dequantize, quantize_rows

_LIBRARY = torch.library.Library("neuron", "FRAGMENT")
_LIBRARY.define("quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? zero, Tensor? bias) -> Tensor")

_LIBRARY.define("dynamic_quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? bias) -> Tensor")

QUANTIZED_LINEAR = torch.ops.neuron.quantized_linear.default
"""`x @ dequantized.T + bias` in the dtype of `x`; sums are in float32."""
DYNAMIC_LINEAR = torch.ops.neuron.dynamic_quantized_linear.default
"""The same with the rows of `x` quantized as `weights.quantize_rows` does, for a scale for each output."""


@torch.library.register_fake("neuron::quantized_linear", lib=_LIBRARY)
def _shape(
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    num_inputs = values.shape[1] * (2 if values.dtype == torch.uint8 else 1)
    torch._check(x_I.shape[-1] == num_inputs and num_inputs % scale_OG.shape[1] == 0)
    return x_I.new_empty((*x_I.shape[:-1], values.shape[0]))


@torch.library.impl(_LIBRARY, "quantized_linear", "CPU")
def _run(
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    weight_OI = dequantize(values, scale_OG, zero)
    return F.linear(x_I.float(), weight_OI, None if bias is None else bias.float()).to(x_I.dtype)


@torch.library.register_fake("neuron::dynamic_quantized_linear", lib=_LIBRARY)
def _dynamic_shape(
    x_I: torch.Tensor, values: torch.Tensor, scale_O1: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    torch._check(scale_O1.shape[1] == 1)
    return _shape(x_I, values, scale_O1, None, bias)


@torch.library.impl(_LIBRARY, "dynamic_quantized_linear", "CPU")
def _run_dynamic(
    x_I: torch.Tensor, values: torch.Tensor, scale_O1: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    numbers_I, row_scale = quantize_rows(x_I, values.dtype)
    result_O = F.linear(numbers_I.float(), values.float()) * row_scale * scale_O1[:, 0]
    return (result_O if bias is None else result_O + bias.float()).to(x_I.dtype)
