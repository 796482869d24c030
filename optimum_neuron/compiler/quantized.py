"""Matrix products with quantized weights, each as one operator of a graph.

TensorE multiplies the stored numbers, which are exact in bfloat16, by 16-bit activations and sums in float32; the sum
of each group is scaled when it leaves PSUM. A model that is quantized calls it in place of `linear`; host code has a
kernel for it (`lower/quantized`). `weights/schemes.py` defines the layout of the operands.

    torch.ops.neuron.quantized_linear(x, values, scale, zero, bias)
    torch.ops.neuron.dynamic_quantized_linear(x, values, scale, bias)   # quantizes each token of the inputs too
    torch.ops.neuron.pick_experts(values, index)                        # numbers of the experts of each token
    torch.ops.neuron.quantized_experts(x, values, scale, zero)          # each expert on all tokens, or on its own
    torch.ops.neuron.quantized_experts_sum(x, values, scale, zero)      # summed over experts

Shape legend: I inputs, O outputs, G groups of inputs, E experts, N tokens.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..weights import dequantize, quantize_rows
from .custom_operators import define


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


def _run(
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    weight_OI = dequantize(values, scale_OG, zero)
    return F.linear(x_I.float(), weight_OI, None if bias is None else bias.float()).to(x_I.dtype)


def _dynamic_shape(
    x_I: torch.Tensor, values: torch.Tensor, scale_O1: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    torch._check(scale_O1.shape[1] == 1)
    return _shape(x_I, values, scale_O1, None, bias)


def _run_dynamic(
    x_I: torch.Tensor, values: torch.Tensor, scale_O1: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    numbers_I, row_scale = quantize_rows(x_I, values.dtype)
    result_O = F.linear(numbers_I.float(), values.float()) * row_scale * scale_O1[:, 0]
    return (result_O if bias is None else result_O + bias.float()).to(x_I.dtype)


def _picked_shape(values: torch.Tensor, index_P: torch.Tensor) -> torch.Tensor:
    return values.new_empty((*index_P.shape, *values.shape[1:]))


def _pick(values: torch.Tensor, index_P: torch.Tensor) -> torch.Tensor:
    return values.view(torch.uint8)[index_P].view(values.dtype)


def _experts_shape(
    x: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero: torch.Tensor | None
) -> torch.Tensor:
    num_experts, num_outputs = values.shape[:2]
    torch._check(x.shape[-1] == values.shape[2] * (2 if values.dtype == torch.uint8 else 1))
    return x.new_empty((num_experts, x.shape[-2], num_outputs))


def _sum_shape(
    x: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero: torch.Tensor | None
) -> torch.Tensor:
    return x.new_empty((x.shape[-2], values.shape[1]))


def _run_experts(
    x: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero: torch.Tensor | None
) -> torch.Tensor:
    """One expert after the other, so that one weight is in float32 at a time."""
    out_ENO = x.new_empty((len(values), x.shape[-2], values.shape[1]))
    for expert, matrix in enumerate(values):
        weight_OI = dequantize(matrix, scale_EOG[expert], None if zero is None else zero[expert])
        out_ENO[expert] = F.linear((x if x.dim() == 2 else x[expert]).float(), weight_OI)
    return out_ENO


def _run_sum(
    x_ENI: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero: torch.Tensor | None
) -> torch.Tensor:
    """Rows of zeros, of tokens that did not choose an expert, are left out."""
    out_NO = torch.zeros((x_ENI.shape[1], values.shape[1]), dtype=torch.float32)
    for expert, rows_NI in enumerate(x_ENI):
        (token,) = rows_NI.any(-1).nonzero(as_tuple=True)
        if len(token):
            weight_OI = dequantize(values[expert], scale_EOG[expert], None if zero is None else zero[expert])
            out_NO.index_add_(0, token, F.linear(rows_NI[token].float(), weight_OI))
    return out_NO.to(x_ENI.dtype)


QUANTIZED_LINEAR = define(
    "neuron::quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? zero, Tensor? bias) -> Tensor",
    fake=_shape,
    run=_run,
)
"""`x @ dequantized.T + bias` in the dtype of `x`; sums are in float32."""
DYNAMIC_LINEAR = define(
    "neuron::dynamic_quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? bias) -> Tensor",
    fake=_dynamic_shape,
    run=_run_dynamic,
)
"""The same with the rows of `x` quantized as `weights.quantize_rows` does, for a scale for each output."""
PICK_EXPERTS = define("neuron::pick_experts(Tensor values, Tensor index) -> Tensor", fake=_picked_shape, run=_pick)
"""`values[index]` of stored numbers, which are moved: an 8-bit float needs no arithmetic on the core."""
QUANTIZED_EXPERTS = define(
    "neuron::quantized_experts(Tensor x, Tensor values, Tensor scale, Tensor? zero) -> Tensor",
    fake=_experts_shape,
    run=_run_experts,
)
"""Tokens [N, I] or [E, N, I] by the weight of each expert: [E, N, O] in the dtype of the tokens."""
QUANTIZED_EXPERTS_SUM = define(
    "neuron::quantized_experts_sum(Tensor x, Tensor values, Tensor scale, Tensor? zero) -> Tensor",
    fake=_sum_shape,
    run=_run_sum,
)
"""Tokens [E, N, I] by the weight of each expert, summed over experts: [N, O]."""
