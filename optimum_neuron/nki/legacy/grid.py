"""Grids of programs, and which of the physical cores runs each: `kernel[nl.nc(2) * 4, 2]`."""

from __future__ import annotations

import math
from typing import Any

from ..core import current
from .published import LANGUAGE, listed, published
from .tiles import nl


class nc(int):  # noqa: N801 - the vendor's name
    """A dimension of the grid that goes over physical cores."""

    def __mul__(self, other: Any) -> SpmdDim:
        return SpmdDim(self, other)

    def __rmul__(self, other: Any) -> SpmdDim:
        return SpmdDim(other, self)


class SpmdDim(int):
    """A dimension of the grid of two factors, one of which may go over physical cores."""

    factors: tuple[int, ...]

    def __new__(cls, *factors: int) -> SpmdDim:
        """Return the product of its factors."""
        result = super().__new__(cls, math.prod(int(factor) for factor in factors))
        result.factors = factors
        return result


def physical_core(rank: tuple[int, ...], sizes: tuple[Any, ...]) -> int:
    """Return which physical core runs a program; all run on the first where no dimension names cores."""
    core = 0
    for place, size in zip(rank, sizes, strict=True):
        factors = size.factors if isinstance(size, SpmdDim) else (size,)
        for factor in reversed(factors):
            place, index = divmod(place, int(factor))
            if isinstance(factor, nc):
                core = core * int(factor) + index
    return core


@listed(LANGUAGE)
def program_id(axis: int) -> int:
    """Return the place of this program in a dimension of the grid; 0 without a grid."""
    rank = current().rank
    return rank[axis] if axis < len(rank) else 0


@listed(LANGUAGE)
def num_programs(axes: Any = None) -> Any:
    """Return the size of a dimension of the grid, or of several; the product of all if none is named."""
    shape = current().grid.shape
    if axes is None:
        return math.prod(shape)
    if isinstance(axes, int):
        return int(shape[axes]) if axes < len(shape) else 1
    return math.prod(int(shape[axis]) for axis in axes)


@listed(LANGUAGE)
def static_range(*args: Any) -> range:
    """Return the numbers of a loop, which are known to the compiler."""
    return range(*map(int, args))


for _name in ("affine_range", "sequential_range"):
    published(LANGUAGE, _name)(static_range)
listed(LANGUAGE)(nl.program_ndim)
LANGUAGE |= {"nc": nc, "spmd_dim": SpmdDim}
