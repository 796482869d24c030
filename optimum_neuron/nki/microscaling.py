"""Microscaling formats: four values in an element, and a power of two for each block of 32 values.

A block is 8 partitions by 4 values, as the public documentation of `quantize_mx` describes. Scales are exponents with
the bias 127 (E8M0 of the OCP specification); 255 is NaN. The scale of a block is that of the specification: the
exponent of its largest value less the largest exponent of the format. Values beyond the format saturate.
"""

from __future__ import annotations

import torch

BLOCK_PARTITIONS, VALUES, QUADRANT = 8, 4, 32
_LARGEST = {"float8_e5m2_x4": torch.float8_e5m2, "float8_e4m3fn_x4": torch.float8_e4m3fn}
_EXPONENTS = {"float8_e5m2_x4": 15, "float8_e4m3fn_x4": 8}
_FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
NAN_SCALE, BIAS = 255, 127


def unpacked(packed: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the values of packed elements as float32, in a last dimension of four."""
    if dtype in _LARGEST:
        return packed.contiguous().unsqueeze(-1).view(torch.uint8).view(_LARGEST[dtype]).float()
    codes = (packed.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(VALUES))) & 15
    return torch.where(codes >= 8, -1.0, 1.0) * _FP4[codes & 7]


def block_scales(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return the scales of the blocks of [partitions, elements, 4] as bytes, [blocks, elements]."""
    blocks = values.reshape(-1, BLOCK_PARTITIONS, *values.shape[1:])
    largest = blocks.abs().amax((1, 3))
    _, exponent = torch.frexp(largest)
    scales = (exponent - 1 - _EXPONENTS[dtype] + BIAS).clamp(0, NAN_SCALE - 1)
    scales = torch.where(largest == 0, torch.zeros_like(scales), scales)
    return torch.where(torch.isfinite(largest), scales, NAN_SCALE)


def multiples(scales: torch.Tensor) -> torch.Tensor:
    """Return the factors of scales [blocks, elements] for [partitions, elements, 1]."""
    factors = torch.exp2(scales.double() - BIAS).float()
    factors = torch.where(scales == NAN_SCALE, torch.nan, factors)
    return factors.repeat_interleave(BLOCK_PARTITIONS, dim=0).unsqueeze(-1)


def packed(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return values [..., 4] rounded to a format and packed; they saturate."""
    kind = _LARGEST[dtype]
    largest = torch.finfo(kind).max
    return values.clamp(-largest, largest).to(kind).view(torch.uint8).contiguous().view(torch.int32).squeeze(-1)


def scale_rows(partitions: int) -> list[int]:
    """Return the partitions that hold the scales of so many partitions: the first four of each 32."""
    blocks = partitions // BLOCK_PARTITIONS
    per_quadrant = QUADRANT // BLOCK_PARTITIONS
    return [block // per_quadrant * QUADRANT + block % per_quadrant for block in range(blocks)]
