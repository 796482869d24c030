"""Kernels of this package that host code calls."""

from __future__ import annotations

from . import attention, block_attention, few_rows, quantized, winograd
from .panels import readers

KERNELS = (
    *(attention.KERNEL, block_attention.KERNEL, few_rows.KERNEL, quantized.KERNEL, winograd.KERNEL),
    *readers.KERNELS.values(),
)
