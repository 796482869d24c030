"""Weights of the OCP microscaling formats, in the layouts of NxD: numbers of 4 or 8 bits in runs with one exponent.

Several numbers share an element, the first in the lowest bits: two of 4 bits a uint8, four of them a uint16, four of 8
bits a uint32. It does not know what layers compute with them.

    weight = get_mxfp4_tensor(blocks, scales)  # as gpt-oss stores its experts
"""

from __future__ import annotations

import torch

from ..errors import AssertedConfigError
from ..weights import mx

FP4_VALUES = mx.mx_numbers(torch.arange(16)).tolist()
"""The number of each code of 4 bits."""


def split_byte_4bit_tensor(tensor: torch.Tensor, *, rows_per_chunk: int | None = None) -> torch.Tensor:
    """Return the codes of bytes, a uint8 for each.

    Args:
        tensor: bytes [..., n].
        rows_per_chunk: how many rows NxD converts at once; results do not depend on it.

    Returns:
        Codes [..., 2 n].
    """
    values = tensor.contiguous().view(torch.uint8)
    return torch.stack([values & 15, values >> 4], -1).flatten(-2)


def pack_byte_4bit_tensor(tensor: torch.Tensor, *, rows_per_chunk: int | None = None) -> torch.Tensor:
    """Return bytes with two codes each.

    Args:
        tensor: codes, uint8 [..., 2 n].
        rows_per_chunk: as of `split_byte_4bit_tensor`.

    Returns:
        Bytes [..., n].

    Raises:
        AssertedConfigError: the codes are not uint8, or their number is odd.
    """
    if tensor.dtype != torch.uint8 or tensor.shape[-1] % 2 or not tensor.shape[-1]:
        message = f"Codes of dtype {tensor.dtype} and shape {list(tensor.shape)} do not fill bytes."
        raise AssertedConfigError(message, hint="Pass uint8, and an even number of codes in the last dimension.")
    low, high = tensor.unflatten(-1, (-1, 2)).unbind(-1)
    return low | (high << 4)


def pack_fp4_x4_uint16(X: torch.Tensor) -> torch.Tensor:
    """Return pairs of bytes as uint16.

    Args:
        X: bytes with two codes each [..., 2 n].
    """
    return X.contiguous().view(torch.uint16)


def apply_lut_byte_4bit_tensor(
    blocks: torch.Tensor, *, rows_per_chunk: int | None = None, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Return the numbers of codes, without their exponents; the last two dimensions become one.

    Args:
        blocks: codes [..., runs, n].
        rows_per_chunk: as of `split_byte_4bit_tensor`.
        dtype: of the numbers.
    """
    return mx.mx_numbers(blocks).to(dtype).flatten(-2)


def dequant_byte_4bit_tensor(
    blocks: torch.Tensor, scales: torch.Tensor, *, rows_per_chunk: int | None = None
) -> torch.Tensor:
    """Return the bfloat16 numbers of codes [..., runs, n] with their exponents [..., runs].

    Args:
        blocks: codes.
        scales: exponents with a bias of 127.
        rows_per_chunk: as of `split_byte_4bit_tensor`.
    """
    return _scaled(mx.mx_numbers(blocks), scales, torch.bfloat16).flatten(-2)


def get_mxfp4_tensor(
    blocks: torch.Tensor,
    scales: torch.Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    rows_per_chunk: int | None = None,
) -> torch.Tensor:
    """Return the numbers of runs of bytes.

    Args:
        blocks: bytes with two codes each [..., runs, 16].
        scales: exponents with a bias of 127 [..., runs].
        dtype: of the numbers.
        rows_per_chunk: as of `split_byte_4bit_tensor`.

    Returns:
        Numbers [..., 32 runs].
    """
    return _scaled(mx.unpack_mx(blocks), scales, dtype).flatten(-2)


def get_mxfp4_tensor_from_uint16(
    blocks: torch.Tensor,
    scales: torch.Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    rows_per_chunk: int | None = None,
    output_quad_row: bool = False,
) -> torch.Tensor:
    """Return the numbers of runs of uint16.

    Args:
        blocks: elements with four codes each [..., runs, 8].
        scales: exponents with a bias of 127 [..., runs].
        dtype: of the numbers.
        rows_per_chunk: as of `split_byte_4bit_tensor`.
        output_quad_row: keep the four numbers of an element apart.

    Returns:
        Numbers [..., 32 runs], or [..., 8 runs, 4].
    """
    numbers = mx.unpack_mx(blocks.contiguous().view(torch.uint8))
    return _in_fours(_scaled(numbers, scales, dtype), output_quad_row)


def get_mxfp8_tensor_from_uint32(
    blocks: torch.Tensor,
    scales: torch.Tensor,
    *,
    dtype: torch.dtype = torch.bfloat16,
    fp8_dtype: torch.dtype = torch.float8_e4m3fn,
    rows_per_chunk: int | None = None,
    output_quad_row: bool = False,
    replace_nan_with_zeros: bool = False,
) -> torch.Tensor:
    """Return the numbers of runs of uint32.

    Args:
        blocks: elements with four numbers of 8 bits each [..., runs, 8].
        scales: exponents with a bias of 127 [..., runs].
        dtype: of the numbers.
        fp8_dtype: of the numbers of 8 bits.
        rows_per_chunk: as of `split_byte_4bit_tensor`.
        output_quad_row: keep the four numbers of an element apart.
        replace_nan_with_zeros: return 0 where the bits are no number.

    Returns:
        Numbers [..., 32 runs], or [..., 8 runs, 4].
    """
    found = _scaled(blocks.contiguous().view(fp8_dtype).float(), scales, dtype)
    return _in_fours(found.nan_to_num(nan=0.0) if replace_nan_with_zeros else found, output_quad_row)


def split_gate_up(
    W_gate_up: torch.Tensor, scale_gate_up: torch.Tensor, bias_gate_up: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return weights, exponents, and bias of the gates, and those of the other half, of experts that interleave both.

    Args:
        W_gate_up: blocks [experts, 2 n, runs, 16].
        scale_gate_up: exponents [experts, 2 n, runs].
        bias_gate_up: bias [experts, 2 n].
    """
    whole = (W_gate_up, scale_gate_up, bias_gate_up)
    return tuple(one[:, first::2].contiguous() for first in (0, 1) for one in whole)


def _scaled(numbers: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers of runs, times their powers of two."""
    if numbers.shape[:-1] != scales.shape:
        message = f"Blocks in runs of shape {list(numbers.shape[:-1])} have exponents of shape {list(scales.shape)}."
        raise AssertedConfigError(message, hint="Pass one exponent for each run.", scales=list(scales.shape))
    return torch.ldexp(numbers, scales.to(torch.int32).unsqueeze(-1) - 127).to(dtype)


def _in_fours(runs: torch.Tensor, apart: bool) -> torch.Tensor:
    numbers = runs.flatten(-2)
    return numbers.unflatten(-1, (-1, 4)) if apart else numbers
