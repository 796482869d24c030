"""Products with quantized experts on the host CPU, in operators that Inductor fuses.

A row that has its own weight reads the stored numbers once: they are gathered, converted, multiplied, and summed
in one loop. Many rows go to oneDNN, on weights that are dequantized before.

    own_weights(x_P1I, values, scale, zero)     # [P, 1, O]

Shape legend: P pairs of a token and an expert, E experts, N tokens, O outputs, I inputs, G groups of inputs.
"""

from __future__ import annotations

import torch

from ...weights import RUN, SYMMETRIC_ZERO, dequantize, mx_numbers, mx_scale


def picked(values: torch.Tensor, index_P: torch.Tensor) -> torch.Tensor:
    """Numbers of the experts of each pair."""
    return values[index_P]


def product(
    x: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero_EOG: torch.Tensor | None
) -> torch.Tensor:
    """Tokens [N, I] or [E, N, I] by the weight of each expert: [E, N, O]."""
    if x.dim() == 3 and x.shape[1] == 1:
        return own_weights(x, values, scale_EOG, zero_EOG)
    weight_EOI = dequantize(values, scale_EOG, zero_EOG)
    return torch.matmul(x.float(), weight_EOI.transpose(1, 2)).to(x.dtype)


def sum_of_experts(
    x_ENI: torch.Tensor, values: torch.Tensor, scale_EOG: torch.Tensor, zero_EOG: torch.Tensor | None
) -> torch.Tensor:
    """Tokens [E, N, I] by the weight of each expert, summed over experts: [N, O]."""
    weight_EOI = dequantize(values, scale_EOG, zero_EOG)
    return torch.tensordot(x_ENI.float(), weight_EOI, dims=([0, 2], [0, 2])).to(x_ENI.dtype)


def own_weights(
    x_P1I: torch.Tensor, values: torch.Tensor, scale_POG: torch.Tensor, zero_POG: torch.Tensor | None
) -> torch.Tensor:
    """Each row by its own weight: [P, 1, O]."""
    x_PI = x_P1I[:, 0].float()
    if values.dtype != torch.uint8:
        x_PGI = x_PI.unflatten(1, (scale_POG.shape[2], -1))
        sum_POG = (values.float().unflatten(2, (scale_POG.shape[2], -1)) * x_PGI[:, None]).sum(-1)
        return (sum_POG * scale_POG).sum(-1)[:, None].to(x_P1I.dtype)
    is_mx = scale_POG.dtype == torch.uint8
    # Neighbors share a byte in mxfp4, numbers 16 apart otherwise.
    halves = x_PI.unflatten(1, (-1, RUN // 2, 2)).movedim(-1, 2) if is_mx else x_PI.unflatten(1, (-1, 2, RUN // 2))
    bytes_ = values.unflatten(2, (-1, RUN // 2))
    low, high = bytes_ & 15, bytes_ >> 4
    if is_mx:
        numbers, scale = (mx_numbers(low), mx_numbers(high)), mx_scale(scale_POG)
    else:
        numbers, scale = (low.float(), high.float()), scale_POG.float()
    sum_POR = (numbers[0] * halves[:, None, :, 0] + numbers[1] * halves[:, None, :, 1]).sum(-1)
    sum_POG = sum_POR.unflatten(2, (scale.shape[2], -1)).sum(-1)
    if not is_mx:
        sum_PG = x_PI.unflatten(1, (scale.shape[2], -1)).sum(-1)
        sum_POG = sum_POG - (SYMMETRIC_ZERO if zero_POG is None else zero_POG.float()) * sum_PG[:, None]
    return (sum_POG * scale).sum(-1)[:, None].to(x_P1I.dtype)
