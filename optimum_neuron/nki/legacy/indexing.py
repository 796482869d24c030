"""Index tiles and masks, arrays of numbers that name elements, and the views of a tensor that they yield.

`nl.arange` and `nl.mgrid` yield arrays of NumPy, so expressions of them are arrays too. An index of `nl.mgrid` has size
1 in the dimensions that it does not depend on, and knows the grid it is of. A mask leaves out elements. What it leaves
is a block, which makes views smaller, or any set, which is skipped one by one.

Indices that are sums of index tiles times numbers become a view with one step for each dimension; steps backward,
indices that only the core knows, and masks that leave no block become an indirect view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from ..core import Rule, refuse, require
from ..indirect import IndirectTensor
from ..tensor import NkiTensor

Slices = tuple[slice, ...]
Mask: TypeAlias = npt.ArrayLike | None
"""Which elements; None for all."""


class IndexTile(np.ndarray):
    """An array of indices."""

    grid: tuple[int, ...] | None
    """Sizes of the grid that it is an index of; None if they are its own."""
    is_dynamic: bool
    """Whether indices were read from memory."""

    @classmethod
    def of(cls, values: object, grid: tuple[int, ...] | None = None, *, is_dynamic: bool = False) -> Self:
        """Return values as an index tile."""
        result = np.asarray(values).view(cls)
        result.grid, result.is_dynamic = grid, is_dynamic
        return result

    def __array_finalize__(self, parent: object) -> None:
        self.grid, self.is_dynamic = None, isinstance(parent, IndexTile) and parent.is_dynamic

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object) -> Any:
        """Compute with arrays; the result has the grid of its inputs where theirs agree."""
        plain = [np.asarray(value) if isinstance(value, IndexTile) else value for value in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        if not isinstance(result, np.ndarray | np.generic):
            return result
        tiles = [value for value in inputs if isinstance(value, IndexTile)]
        return IndexTile.of(result, _common_grid(tiles), is_dynamic=any(tile.is_dynamic for tile in tiles))

    def dense(self) -> np.ndarray:
        """Return the values in all places of its grid."""
        return np.broadcast_to(np.asarray(self), self.grid or self.shape)

    def __bool__(self) -> bool:
        require(self.size == 1, Rule.MASK_CONDITION)
        return bool(np.asarray(self).reshape(()))

    def __setitem__(self, key: object, value: object) -> None:
        refuse(Rule.INDEX_TILE_ASSIGNMENT)


def _common_grid(tiles: Sequence[IndexTile]) -> tuple[int, ...] | None:
    grids = [tile.grid for tile in tiles if tile.grid is not None]
    if not grids:
        return None
    try:
        return np.broadcast_shapes(*grids, *(tile.shape for tile in tiles))
    except ValueError:
        return None


class Grid(tuple[IndexTile, ...]):
    """The index tiles of `nl.mgrid[...]`: partitions in `p`, then `x`, `y`, `z` and `w`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> IndexTile:
        if name in ("p", "x", "y", "z", "w"):
            return self["pxyzw".index(name)]
        raise AttributeError(name)


class _Mgrid:
    """`nl.mgrid[0:128, 0:512]`: index tiles of a grid."""

    def __getitem__(self, key: object) -> Grid:
        keys = key if isinstance(key, tuple) else (key,)
        axes = np.ogrid[keys]
        sizes = tuple(axis.size for axis in axes)
        return Grid(IndexTile.of(axis, sizes) for axis in axes)


mgrid = _Mgrid()
"""Index tiles of a grid, by slices."""


def arange(*args: int) -> IndexTile:
    """Return the numbers to a stop, or from a start to a stop, to be indexed with None for the other dimensions."""
    return IndexTile.of(np.arange(*args))


@dataclasses.dataclass(frozen=True)
class Region:
    """What a mask leaves of a shape."""

    shape: tuple[int, ...]
    block: Slices
    """The smallest block that has all that it leaves."""
    chosen: np.ndarray | None = None
    """Which elements of the block it leaves; None for all."""

    @classmethod
    def of(cls, mask: Mask, shape: Sequence[int]) -> Region:
        """Return what a mask leaves; None leaves all."""
        sizes = tuple(shape)
        if mask is None:
            return cls(sizes, tuple(slice(size) for size in sizes))
        values = np.asarray(mask, dtype=bool)
        try:
            chosen = np.broadcast_to(values, sizes)
        except ValueError:
            refuse(Rule.MASK_SHAPE, values=values, shape=sizes)
        if not chosen.any():
            return cls(sizes, tuple(slice(0) for _ in sizes))
        block = tuple(_extent(chosen, axis) for axis in range(len(sizes)))
        inside = chosen[block]
        return cls(sizes, block, None if inside.all() else inside)

    @property
    def is_all(self) -> bool:
        """Whether all elements are left."""
        return self.chosen is None and self.sizes == self.shape

    @property
    def is_empty(self) -> bool:
        """Whether no element is left."""
        return 0 in self.sizes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the block."""
        return tuple(part.stop - (part.start or 0) for part in self.block)

    def rows(self, shape: Sequence[int]) -> Region:
        """Return its partitions, for a result of another shape that has as many."""
        first = self.block[0] if self.block else slice(0, 1)
        return Region(tuple(shape), (first, *(slice(size) for size in shape[1:])))


def _extent(chosen: np.ndarray, axis: int) -> slice:
    others = tuple(other for other in range(chosen.ndim) if other != axis)
    places = np.flatnonzero(chosen.any(axis=others))
    return slice(int(places[0]), int(places[-1]) + 1)


def strided(
    indices: Sequence[np.ndarray], strides: Sequence[int], shape: Sequence[int], block: Slices
) -> tuple[int, tuple[int, ...]]:
    """Return first element and step of each dimension of the elements that index tiles name."""
    first, steps = 0, [0] * len(shape)
    for index, stride in zip(indices, strides, strict=True):
        aligned = index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
        axes = [axis for axis, size in enumerate(aligned.shape) if size > 1]
        if len(axes) > 1:
            return steps_of(addresses(indices, strides, shape, block))
        values = aligned.ravel()[block[axes[0]]] if axes else aligned.ravel()
        first += int(values[0]) * stride
        if values.size > 1:
            step = int(values[1]) - int(values[0])
            require((np.diff(values) == step).all(), Rule.AFFINE_INDICES)
            steps[axes[0]] += step * stride
    return first, tuple(steps)


def addresses(indices: Sequence[np.ndarray], strides: Sequence[int], shape: Sequence[int], block: Slices) -> np.ndarray:
    """Return the number of each element that index tiles name, in a block of their shape."""
    total = np.zeros([part.stop - (part.start or 0) for part in block], dtype=np.int64)
    for index, stride in zip(indices, strides, strict=True):
        total += np.broadcast_to(index, tuple(shape))[block] * stride
    return total


def steps_of(places: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """Return the first of some numbers, and the step of each of their dimensions; numbers without are refused."""
    first, steps = int(places.flat[0]), []
    wanted = np.full(places.shape, first, dtype=np.int64)
    for axis, size in enumerate(places.shape):
        second = [0] * places.ndim
        second[axis] = min(1, size - 1)
        steps.append(int(places[tuple(second)]) - first)
        wanted += (steps[-1] * np.arange(size)).reshape([-1 if other == axis else 1 for other in range(places.ndim)])
    require(np.array_equal(wanted, places), Rule.AFFINE_INDICES)
    return first, tuple(steps)


def beyond(shape: Sequence[int], keys: Sequence[Any]) -> tuple[IndexTile, ...]:
    """Return index tiles for slices of which one ends behind the tensor, so that a mask can cut it; else none."""
    pairs = [] if None in keys else [pair for pair in zip(keys, shape, strict=True) if isinstance(pair[0], slice)]
    bounds = [(item.start or 0, size if item.stop is None else item.stop, item.step or 1, size) for item, size in pairs]
    if all(stop <= size for _, stop, _, size in bounds):
        return ()
    ranges = [(start + size * (start < 0), stop + size * (stop < 0), step) for start, stop, step, size in bounds]
    axes = iter(np.ix_(*(np.arange(*each) for each in ranges)))
    return tuple(IndexTile.of(next(axes) if isinstance(item, slice) else item) for item in keys)


def part_of(tensor: NkiTensor, region: Region) -> NkiTensor:
    """Return what a mask leaves of a tensor, as a view."""
    block = type(tensor)(tensor.storage, tensor.data[region.block])
    if region.chosen is None:
        return block
    whole = tuple(slice(size) for size in region.sizes)
    places = addresses(np.ogrid[whole], block.data.stride(), region.sizes, whole) + block.offset
    view = _gathered(tensor, places, region.chosen, skip=True)
    view.steps = block.strides
    return view


def elements(tensor: NkiTensor, indices: Sequence[IndexTile], region: Region) -> NkiTensor:
    """Return the elements that index tiles name and a mask leaves, as a view."""
    if region.is_empty:
        return type(tensor)(tensor.storage, tensor.data.new_empty(region.sizes))
    steps: tuple[int, ...] = ()
    dynamic, plain = any(index.is_dynamic for index in indices), [np.asarray(index) for index in indices]
    if not dynamic:
        _check_bounds(tensor, plain, region)
        first, steps = strided(plain, tensor.strides, region.shape, region.block)
        if region.chosen is None and min(steps, default=0) >= 0:
            data = tensor.data.as_strided(region.sizes, steps, tensor.data.storage_offset() + first)
            return type(tensor)(tensor.storage, data)
    places = addresses(plain, tensor.strides, region.shape, region.block) + tensor.offset
    valid = np.ones(region.sizes, dtype=bool) if region.chosen is None else region.chosen
    for index, length in zip(plain, tensor.shape, strict=True):
        used = np.broadcast_to(index, region.shape)[region.block]
        valid = valid & (used >= 0) & (used < length)
    view = _gathered(tensor, places, valid, skip=region.chosen is not None)
    if steps:
        view.steps = tuple(map(abs, steps))
    return view


def _gathered(tensor: NkiTensor, places: np.ndarray, valid: np.ndarray, *, skip: bool) -> IndirectTensor:
    return IndirectTensor.at(tensor, torch.from_numpy(np.asarray(places)), torch.from_numpy(np.array(valid)), skip=skip)


def _check_bounds(tensor: NkiTensor, indices: Sequence[np.ndarray], region: Region) -> None:
    for dim, (index, length) in enumerate(zip(indices, tensor.shape, strict=True)):
        aligned = index.reshape((1,) * (len(region.shape) - index.ndim) + index.shape)
        if region.chosen is None:
            pairs = zip(region.block, aligned.shape, strict=True)
            used = aligned[tuple(part if size > 1 else slice(1) for part, size in pairs)]
        else:
            used = np.broadcast_to(aligned, region.shape)[region.block][region.chosen]
        first, last = used.min(), used.max()
        fits = first >= 0 and last < length
        require(fits, Rule.INDEX_TILE_BOUNDS, first=first, last=last, dim=dim, tensor=tensor.name, size=length)
