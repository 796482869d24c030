"""Loads and stores of the older API with masks, and functions of tiles that are more than one operator."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ..collectives import reduced
from ..core import Rule, current, refuse, require
from ..dtypes import Dtype
from ..exchange import exchange
from ..indirect import IndirectTensor
from ..memory import Buffer
from ..operators import OPERATORS, as_operator
from ..tensor import NkiTensor
from .creation import full
from .indexing import Mask, Region, arange, mgrid
from .published import LANGUAGE, listed, published
from .results import like, new_tile
from .tiles import (
    IndexedTile,
    LoopSum,
    OlderTensor,
    Product,
    copy_to,
    ins,
    masked,
    nl,
    older,
    region_of,
    resolved,
)


@published(LANGUAGE)
def load(src: Any, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Copy from HBM to a new tile in SBUF, of one element for a number; what the mask leaves out is undefined."""
    _require(src, "load", "src", is_hbm=True)
    dtype = src.dtype if dtype is None else dtype
    return new_tile(src.shape or (1, 1), dtype, mask, lambda dst: copy_to(dst, resolved(src, mask)))


@published(LANGUAGE)
def store(dst: Any, value: Any, *, mask: Mask = None) -> None:
    """Copy a tile or a number to HBM, but for what the mask leaves out."""
    _require(dst, "store", "dst", is_hbm=True)
    target = resolved(dst, mask)
    if not target.size:
        return
    if not isinstance(value, OlderTensor | IndexedTile | Product):
        number = value.item() if isinstance(value, np.generic) else value
        copy_to(target, full((target.shape[0], max(1, target.size // target.shape[0])), number, target.dtype))
        return
    if mask is None:
        region, tile = region_of(value), resolved(value)
        if region is not None:
            tile, target = older(tile).part(region), older(target).part(region)
    else:
        tile = resolved(value, mask if tuple(value.shape) == tuple(dst.shape) else None)
        if tile.size != target.size:
            tile = older(nl.broadcast_to(resolved(value), tuple(dst.shape))).part(Region.of(mask, dst.shape))
    if tile.size != target.size and not isinstance(target, IndirectTensor):
        tile = nl.broadcast_to(tile, target.shape)
    copy_to(target, nl.copy(tile) if tile.buffer is Buffer.psum else tile)


def _require(value: object, function: str, name: str, *, is_hbm: bool) -> None:
    if not isinstance(value, OlderTensor | IndexedTile) or value.buffer.is_hbm != is_hbm:
        place = "hbm" if is_hbm else "sbuf or psum"
        refuse(Rule.PLACE, instruction=function, place=place, operand=name, value=value)


@published(LANGUAGE)
def load_transpose2d(src: object, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Copy a matrix from HBM to SBUF, transposed."""
    if mask is None:
        return older(nl.load_transpose2d(resolved(src), dtype))
    return older(nl.transpose(load(src, mask=mask, dtype=dtype)))


@published(LANGUAGE)
def transpose(x: object, *, dtype: Dtype | None = None, mask: Mask = None) -> OlderTensor:
    """Exchange partitions and elements of a tile."""
    return older(nl.transpose(resolved(x, mask), dtype))


@published(LANGUAGE)
def copy(src: Any, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Copy a tile to SBUF."""
    return like(src, dtype, mask, lambda dst: ins.tensor_copy(dst, resolved(src, mask)))


@published(LANGUAGE)
def matmul(x: object, y: object, *, transpose_x: bool = False, mask: Mask = None) -> Product:
    """Return `x @ y`, or `x.T @ y`: a product that `+=` adds to a tile in PSUM."""
    from .isa import nc_matmul

    return nc_matmul(x if transpose_x else transpose(x), y, mask=mask)


@published(LANGUAGE)
def where(condition: object, x: object, y: object, *, dtype: Dtype | None = None, mask: Mask = None) -> OlderTensor:
    """Take x where the condition is not 0, and y elsewhere."""
    result = older(nl.where(resolved(condition), resolved(x), resolved(y), dtype))
    return result if mask is None else masked(result, Region.of(mask, result.shape))


@published(LANGUAGE)
def broadcast_to(src: Any, *, shape: Any) -> OlderTensor:
    """Repeat dimensions of size 1, without copying."""
    return older(nl.broadcast_to(resolved(src), tuple(shape)))


@listed(LANGUAGE)
def expand_dims(data: object, axis: object) -> OlderTensor:
    """Insert dimensions of size 1 behind the others."""
    result = resolved(data)
    for place in sorted(axis) if isinstance(axis, list | tuple) else (axis,):
        result = nl.expand_dims(result, place)
    return older(result)


@published(LANGUAGE)
def gather_flattened(data: object, indices: object, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Take the elements of each partition that its indices name, counted over all of its dimensions."""
    return older(nl.gather_flattened(resolved(data, mask), resolved(indices), 0, dtype))


@published(LANGUAGE)
def dropout(x: Any, rate: Any, *, dtype: Dtype | None = None, mask: Mask = None) -> OlderTensor:
    """Replace elements by 0 with a probability; the others are not scaled."""
    return like(x, dtype, mask, lambda dst: copy_to(dst, nl.dropout(resolved(x, mask), resolved(rate), dtype)))


@published(LANGUAGE)
def random_seed(seed: Any, *, mask: Mask = None) -> None:
    """Seed the random numbers with a number or a tile of one element."""
    if mask is not None and not np.any(mask):
        return
    nl.random_seed(resolved(seed) if isinstance(seed, OlderTensor | IndexedTile) else full((1, 1), seed, "int32"))


@published(LANGUAGE)
def device_print(prefix: str, x: object, *, mask: Mask = None) -> None:
    """Print a tile, or what a mask leaves of it."""
    tile = resolved(x, mask)
    print(prefix, tile.read() if isinstance(tile, NkiTensor) else tile)


@published(LANGUAGE)
def loop_reduce(x: Any, op: Any, loop_indices: Any, *, dtype: Dtype | None = None, mask: Mask = None) -> LoopSum:
    """Combine a tile with the tensor that it is assigned to, as in `total[...] = nl.loop_reduce(x, np.add, [k])`."""
    return LoopSum(x, as_operator(op), Region.of(mask, x.shape))


@published(LANGUAGE)
def atomic_rmw(dst: object, value: object, op: object, *, mask: Mask = None) -> None:
    """Add a tile or a number to elements of HBM that indices name, one row after the other."""
    require(as_operator(op).name == "add", Rule.ATOMIC_OPERATOR, op=op)
    target, tile = resolved(dst, mask), resolved(value, mask if hasattr(value, "shape") else None)
    rows = target.addresses.reshape(target.shape[0], -1) if isinstance(target, IndirectTensor) else None
    if rows is None or len(rows[:, 0].unique()) == len(rows):
        _add_rows(target, tile)
        return
    for row in range(target.shape[0]):
        part = IndirectTensor.at(target, target.addresses[row : row + 1], target.valid[row : row + 1], skip=target.skip)
        _add_rows(part, tile[row : row + 1] if isinstance(tile, NkiTensor) else tile)


def _add_rows(target: NkiTensor, tile: Any) -> None:
    if not isinstance(tile, NkiTensor):
        tile = full((target.shape[0], max(1, target.size // target.shape[0])), tile, target.dtype)
    ins.dma_compute(target, [target, tile], OPERATORS["add"])


@published(LANGUAGE)
def all_reduce(
    x: Any,
    op: Any,
    program_axes: Any,
    *,
    dtype: Dtype | None = None,
    mask: Mask = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
) -> OlderTensor:
    """Reduce a tile over the programs of the grid that differ in some dimensions; each gets the result.

    `parallel_reduce` trades memory for time on the hardware; the result is the same. A program waits for the others, as
    `asynchronous` allows.
    """
    core, axes = current(), (program_axes,) if isinstance(program_axes, int) else tuple(program_axes)
    sizes = tuple(map(int, core.grid.shape))
    choices = [range(size) if dim in axes else (core.rank[dim],) for dim, size in enumerate(sizes)]
    first = core.number - int(np.ravel_multi_index(core.rank, sizes)) if sizes else core.number
    group = tuple(first + int(np.ravel_multi_index(place, sizes)) for place in itertools.product(*choices)) or (first,)
    tile, operator = resolved(x, mask), as_operator(op)
    parts = exchange(core, group, "all_reduce", (tile.shape, operator), (tile.floats(),), within_grid=True)
    assert parts is not None
    total = reduced([parts[member][0] for member in group], operator)
    return new_tile(tuple(x.shape), tile.dtype if dtype is None else dtype, mask, lambda dst: dst.write(total))


listed(LANGUAGE)(nl.ds)
listed(LANGUAGE)(arange)


class TileSize(type(nl.tile_size)):  # type: ignore[misc]
    """Largest sizes of tiles, as `nl.tile_size` of the older API."""

    @property
    def total_available_sbuf_size(self) -> int:
        """Bytes of a partition of SBUF that kernels may use: all but what the compiler keeps."""
        return int(self.sbuf_fmax_bytes) - 16 * 1024


@listed(LANGUAGE)
def gemm_grid() -> Any:
    """Return the index tiles of the largest result of a matmul."""
    return mgrid[0:128, 0:512]


@listed(LANGUAGE)
def gemm_stationary_grid() -> Any:
    """Return the index tiles of the largest stationary tile of a matmul."""
    return mgrid[0:128, 0:128]
