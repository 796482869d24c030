"""Loops, places in the grid, sizes of tiles, and prints."""

from __future__ import annotations

import math
from typing import Any

from ..core import current
from ..memory import Buffer
from ..tensor import NkiTensor


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Return the numbers of a loop whose iterations do not depend on each other."""
    return range(int(start)) if stop is None else range(int(start), int(stop), step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Return the numbers of a loop whose iterations follow each other."""
    return affine_range(start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Return the numbers of a loop that the compiler unrolls."""
    return affine_range(start, stop, step)


def program_id(axis: int = 0) -> int:
    """Return the place of this core in a dimension of the grid; 0 without a grid."""
    rank = current().rank
    return rank[axis] if axis < len(rank) else 0


def num_programs(axes: Any = None) -> Any:
    """Return the size of the grid, or of some of its dimensions; 1 without a grid."""
    shape = current().grid.shape
    if axes is None:
        return math.prod(shape)
    if isinstance(axes, int):
        return shape[axes] if axes < len(shape) else 1
    return tuple(shape[axis] for axis in axes)


def program_ndim() -> int:
    """Return the number of dimensions of the grid."""
    return len(current().grid.shape)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a tensor."""
    print(print_prefix, tensor.read())


def is_hbm(x: NkiTensor) -> bool:
    """Return whether a tensor is in HBM."""
    return x.buffer.is_hbm


def is_on_chip(x: NkiTensor) -> bool:
    """Return whether a tensor is in SBUF or PSUM."""
    return x.buffer.is_on_chip


def is_psum(x: NkiTensor) -> bool:
    """Return whether a tensor is in PSUM."""
    return x.buffer is Buffer.psum


def is_sbuf(x: NkiTensor) -> bool:
    """Return whether a tensor is in SBUF."""
    return x.buffer is Buffer.sbuf


class _TileSize:
    """Largest sizes of tiles, as `nl.tile_size`."""

    pmax = 128
    psum_fmax = 512
    psum_bank_fmax = 512
    gemm_stationary_fmax = 128
    gemm_moving_fmax = 512
    bn_stats_fmax = 512
    psum_min_align = 4
    sbuf_min_align = 1

    def psum_num_banks(self) -> int:
        """Return the banks of PSUM."""
        banks = current().spec.psum_banks
        assert banks is not None
        return banks

    def sbuf_size_bytes(self) -> int:
        """Return the bytes of a partition of SBUF."""
        return current().partition_bytes(Buffer.sbuf)

    def total_available_sbuf_size(self) -> int:
        """Return the bytes of a partition of SBUF that kernels may use: all."""
        return self.sbuf_size_bytes()


tile_size = _TileSize()
"""Largest sizes of tiles."""


__all__ = [
    *("affine_range", "device_print", "is_hbm", "is_on_chip", "is_psum", "is_sbuf", "num_programs", "program_id"),
    *("program_ndim", "sequential_range", "static_range", "tile_size"),
]
