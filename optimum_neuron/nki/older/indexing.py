"""Index tiles and masks: arrays of numbers that name elements, as views with steps.

`nl.arange` and `nl.mgrid` yield arrays of NumPy, so expressions of them are arrays too. Their sums are affine, and so
become a view with one step for each dimension. A mask that leaves out the ends of dimensions makes the view smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import refuse


class Grid(tuple[np.ndarray, ...]):
    """The index tiles of `nl.mgrid[...]`: partitions in `p`, then `x`, `y` and `z`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> np.ndarray:
        if name in ("p", "x", "y", "z"):
            return self["pxyz".index(name)]
        raise AttributeError(name)


class _Mgrid:
    """`nl.mgrid[0:128, 0:512]`: dense index tiles."""

    def __getitem__(self, key: Any) -> Grid:
        return Grid(np.mgrid[key])


mgrid = _Mgrid()
"""Dense index tiles, by slices."""


def arange(start: int, stop: int | None = None, step: int = 1) -> np.ndarray:
    """Return the numbers from start to stop, to be indexed with None for the other dimensions."""
    return np.arange(start) if stop is None else np.arange(start, stop, step)


def extents(mask: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """Return how many indices of each dimension a mask leaves, counted from the first.

    Raises:
        KernelError: it leaves no block that begins at the first element.
    """
    if mask is None:
        return tuple(shape)
    chosen = np.broadcast_to(np.asarray(mask, dtype=bool), shape)
    axes = range(len(shape))
    sizes = tuple(int(chosen.any(axis=tuple(other for other in axes if other != axis)).sum()) for axis in axes)
    if not chosen.any():
        return (0,) * len(shape)
    if int(chosen.sum()) != math.prod(sizes) or not chosen[tuple(slice(size) for size in sizes)].all():
        refuse(
            "The mask leaves elements that are not one block from the first on.",
            hint="Choose between elements with nisa.affine_select or nl.where.",
            rule="mask",
            shape=tuple(shape),
        )
    return sizes


def pattern(indices: Sequence[Any], strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Return first element and steps of the elements that index tiles name, in the first `sizes` of each dimension.

    Raises:
        KernelError: the elements do not have one step for each dimension.
    """
    block = tuple(slice(size) for size in sizes)
    shape = np.broadcast_shapes(*(np.shape(index) for index in indices))
    places = sum(np.broadcast_to(index, shape)[block] * stride for index, stride in zip(indices, strides, strict=True))
    assert isinstance(places, np.ndarray)
    first, steps = int(places.flat[0]), []
    for axis, size in enumerate(sizes):
        second = [0] * len(sizes)
        second[axis] = min(1, size - 1)
        steps.append(int(places[tuple(second)]) - first)
    wanted = first + sum(
        step * np.arange(size).reshape([-1 if other == axis else 1 for other in range(len(sizes))])
        for axis, (step, size) in enumerate(zip(steps, sizes, strict=True))
    )
    if min(steps, default=0) < 0 or not np.array_equal(np.broadcast_to(wanted, places.shape), places):
        refuse(
            "The index tiles name elements that have no one step for each dimension.",
            hint="Index with sums of nl.arange times numbers, or gather with indices in memory.",
            rule="affine",
        )
    return first, tuple(steps)
