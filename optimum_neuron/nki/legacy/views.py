"""Views of the elements of a tensor that index tiles and masks name.

Indices that are sums of index tiles times numbers become a view with one step for each dimension; steps backward,
indices that only the core knows, and masks that leave no block become an indirect view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..core import Rule, refuse, require
from ..indirect import IndirectTensor
from ..tensor import NkiTensor
from .indexing import IndexTile, Region, addresses, strided


def check_kinds(tensor: NkiTensor, keys: Sequence[Any], kinds: tuple[type, ...]) -> None:
    """Refuse index tiles in some dimensions beside slices in others."""
    fits = len(keys) == tensor.ndim and all(isinstance(item, kinds) for item in keys)
    require(fits, Rule.MIXED_INDICES, of=tensor)


def check_rank(tensor: NkiTensor, indices: Sequence[Any]) -> None:
    """Refuse index tiles of one dimension, which say no partition dimension."""
    has_partitions = tensor.buffer.is_hbm or any(np.ndim(item) >= 2 for item in indices)
    require(has_partitions, Rule.INDEX_TILE_DIMS, tensor=tensor.name)


def beyond(shape: Sequence[int], keys: Sequence[Any]) -> tuple[IndexTile, ...]:
    """Return index tiles for slices of which one ends behind the tensor, so that a mask can cut it; else none."""
    pairs = [] if None in keys else [pair for pair in zip(keys, shape, strict=True) if isinstance(pair[0], slice)]
    if all((item.stop or 0) <= size for item, size in pairs):
        return ()
    axes = iter(np.ix_(*(np.arange(item.start or 0, item.stop or size, item.step or 1) for item, size in pairs)))
    return tuple(IndexTile.of(next(axes) if isinstance(item, slice) else item) for item in keys)


def part_of(tensor: NkiTensor, region: Region) -> NkiTensor:
    """Return what a mask leaves of a tensor, as a view."""
    block = type(tensor)(tensor.storage, tensor.data[region.block])
    if region.chosen is None:
        return block
    whole = tuple(slice(size) for size in region.sizes)
    places = addresses(np.ogrid[whole], block.data.stride(), region.sizes, whole) + block.offset
    return _gathered(tensor, places, region.chosen, skip=True)


def elements(tensor: NkiTensor, indices: Sequence[np.ndarray], region: Region) -> NkiTensor:
    """Return the elements that index tiles name and a mask leaves, as a view."""
    if region.is_empty:
        return type(tensor)(tensor.storage, tensor.data.new_empty(region.sizes))
    steps: tuple[int, ...] = ()
    dynamic = any(isinstance(index, IndexTile) and index.is_dynamic for index in indices)
    if not dynamic:
        _check_bounds(tensor, indices, region)
    plain = [np.asarray(index) for index in indices]
    if not dynamic:
        first, steps = _steps(tensor, plain, region)
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


def _steps(tensor: NkiTensor, indices: list[np.ndarray], region: Region) -> tuple[int, tuple[int, ...]]:
    """Return first element and step of each dimension, which an access pattern needs."""
    found = strided(indices, tensor.strides, region.shape, region.block)
    if found is None:
        refuse(Rule.AFFINE_INDICES)
    return found


def _check_bounds(tensor: NkiTensor, indices: Sequence[np.ndarray], region: Region) -> None:
    for dim, (index, length) in enumerate(zip(indices, tensor.shape, strict=True)):
        aligned = np.asarray(index).reshape((1,) * (len(region.shape) - index.ndim) + index.shape)
        if region.chosen is None:
            pairs = zip(region.block, aligned.shape, strict=True)
            used = aligned[tuple(part if size > 1 else slice(1) for part, size in pairs)]
        else:
            used = np.broadcast_to(aligned, region.shape)[region.block][region.chosen]
        first, last = used.min(), used.max()
        fits = first >= 0 and last < length
        require(fits, Rule.INDEX_TILE_BOUNDS, first=first, last=last, dim=dim, tensor=tensor.name, size=length)
