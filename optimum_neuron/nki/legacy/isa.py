"""`neuronxcc.nki.isa`: instructions that return their result as a new tile; those without other changes are rows of
`adapters.py`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from .. import instructions as ins
from ..core import Rule, current, refuse, require
from ..dtypes import Dtype
from ..memory import Buffer
from ..operators import OPERATORS, Operator, as_operator
from ..tensor import NkiTensor
from . import adapters as adapters
from .creation import fp32
from .indexing import IndexTile, Mask, Region, steps_of
from .published import ISA, listed, published
from .reductions import filled
from .results import (
    dge_mode as dge_modes,
    engine as engines,
    like,
    machine,
    nc_version,
    new_tile,
    oob_mode as oob_modes,
    place,
    reduce_cmd as commands,
    require_block,
    vector,
)
from .tiles import OlderTensor, Product, expect, fresh, masked, nl, older, resolved

_PERF_MODES = {"double_row": "double_row", "double_row_gen3": "double_row"}
tensor_copy = ISA["tensor_copy"]


@published(ISA, hidden={"perf_mode"})
def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Mask = None,
    perf_mode: str | None = None,
) -> Product:
    """Return `stationary.T @ moving`: a product that `+=` adds to a tile in PSUM."""
    rows = 2 if perf_mode in _PERF_MODES else 1
    left, right = _on_chip(resolved(stationary)), _on_chip(resolved(moving))
    shape = (left.elements_per_partition // rows, right.elements_per_partition // rows)
    region = Region.of(mask, shape)
    dtype = left.dtype if is_transpose and current().generation > 2 else "float32"
    options: dict[str, Any] = {
        "is_stationary_onezero": is_stationary_onezero,
        "is_moving_onezero": is_moving_onezero,
        "is_transpose": is_transpose,
        "tile_position": tuple(map(int, tile_position)),
        "tile_size": tuple(map(int, tile_size)),
        "perf_mode": ins.MatmulPerfMode(_PERF_MODES.get(str(perf_mode), "none")),
    }

    def run(dst: NkiTensor, accumulate: bool | None) -> None:
        if region.is_empty:
            return
        whole = older(dst if dst.shape == shape else dst.reshape(shape))
        part = whole.part(region)
        columns, moved = region.sizes
        ins.nc_matmul(
            part,
            left if columns == shape[0] else left[:, :columns],
            right if moved == shape[1] else right[:, :moved],
            accumulate=accumulate,
            **options,
        )

    return expect(Product(shape, run, dtype))


def _on_chip(tile: NkiTensor) -> NkiTensor:
    """Return an operand of a matmul; one in PSUM is copied to SBUF, as the compiler does."""
    if tile.buffer is not Buffer.psum:
        return tile
    return older(nl.copy(tile))


def _of_block(instruction: str, data: Any, mask: Mask, region: Region, operator: Operator) -> NkiTensor:
    """Return the block that a mask leaves of a tile; elements in it that the mask leaves out are neutral."""
    if region.chosen is None:
        tile: NkiTensor = resolved(data, mask)
        return tile
    return filled(instruction, resolved(data), region, operator.name).part(dataclasses.replace(region, chosen=None))


@published(ISA)
def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Mask = None,
    dtype: Dtype | None = None,
    negate: bool = False,
    keepdims: bool = False,
) -> OlderTensor:
    """Reduce the last dimensions of what a mask leaves of a tile."""
    axes = tuple(sorted(dim % len(data.shape) for dim in ((axis,) if isinstance(axis, int) else axis)))
    region, one = Region.of(mask, tuple(data.shape)), as_operator(op)
    tile = _of_block("nisa.tensor_reduce", data, mask, region, one)
    kept = tuple(size for dim, size in enumerate(data.shape) if dim not in axes)
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(data.shape)) if keepdims else kept
    return new_tile(
        shape if len(shape) > 1 else (*shape, 1),
        tile.dtype if dtype is None else dtype,
        region,
        lambda dst: ins.tensor_reduce(dst, one, tile, axes, negate, keepdims),
        rows_only=True,
    )


@published(ISA)
def tensor_partition_reduce(op: Any, data: Any, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Reduce the partitions of a tile to one."""
    one, region = as_operator(op), Region.of(mask, data.shape)
    tile = _of_block("nisa.tensor_partition_reduce", data, mask, region, one)
    return new_tile(
        (1, *data.shape[1:]),
        tile.dtype if dtype is None else dtype,
        Region((1, *data.shape[1:]), (slice(1), *region.block[1:])),
        lambda dst: ins.tensor_partition_reduce(dst, one, tile),
    )


@published(ISA)
def nc_transpose(
    data: Any, *, mask: Mask = None, dtype: Dtype | None = None, engine: Any = engines.unknown
) -> OlderTensor:
    """Transpose a tile: to PSUM on the tensor engine, to SBUF on the vector engine."""
    tile, asked = resolved(data, mask), machine(engine)
    tile = nl.copy(tile) if tile.buffer is Buffer.psum and asked is not ins.Engine.vector else tile
    shape = (tile.elements_per_partition, tile.num_partitions)
    if not tile.size:
        return masked(fresh(data.shape[::-1], tile.dtype), Region.of(False, tuple(data.shape[::-1])))
    on_vector = asked is ins.Engine.vector or (asked is ins.Engine.unknown and max(shape) <= 32)
    result = fresh(shape, tile.dtype, Buffer.sbuf if on_vector else Buffer.psum)
    ins.nc_transpose(result, tile, ins.Engine.vector if on_vector else ins.Engine.tensor)
    if dtype is None or dtype == tile.dtype:
        return result
    return tensor_copy(result, dtype=dtype)


@published(ISA)
def memset(shape: Any, value: Any, dtype: Dtype, *, mask: Mask = None, engine: Any = engines.unknown) -> OlderTensor:
    """Make a tile of one number."""
    number = value.item() if isinstance(value, np.generic) else value
    sizes = tuple(int(size) for size in shape)
    return new_tile(sizes, dtype, mask, lambda dst: ins.memset(dst, number, machine(engine)))


@published(ISA)
def iota(expr: object, dtype: Dtype, *, mask: Mask = None) -> OlderTensor:
    """Make a tile of the values of an expression of index tiles."""
    values = expr.dense() if isinstance(expr, IndexTile) else np.atleast_2d(np.asarray(expr))
    values = values.reshape(-1, 1) if values.ndim < 2 else values
    first, steps = steps_of(values)
    pairs = [[step, size] for step, size in zip(steps[1:], values.shape[1:], strict=True)]
    result = fresh(values.shape, dtype)
    ins.iota(result, pairs, offset=first, channel_multiplier=steps[0])
    return result if mask is None else masked(result, Region.of(mask, result.shape))


@published(ISA)
def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: float, *, mask: Mask = None, dtype: Dtype | None = None
) -> OlderTensor:
    """Take elements where a comparison of index tiles holds, and a number elsewhere.

    The instruction computes its comparison; here it is an array of its results, in a tile that costs nothing.
    """
    tile, region = resolved(on_true_tile, mask), Region.of(mask, tuple(on_true_tile.shape))
    tile = nl.copy(tile) if tile.buffer is Buffer.psum else tile
    holds = np.broadcast_to(np.asarray(pred, dtype=bool), region.shape)

    def write(dst: NkiTensor) -> None:
        predicate = fresh(tile.shape, "uint8")
        predicate.write_constant(torch.from_numpy(np.array(holds[region.block], dtype=np.uint8)))
        source = tile if tile.dtype == dst.dtype else tensor_copy(older(tile), dtype=dst.dtype)
        ins.memset(dst, on_false_value)
        ins.tensor_copy_predicated(dst, source, predicate)

    return like(on_true_tile, dtype, mask, write)


@published(ISA)
def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: Any = commands.idle,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Mask = None,
    dtype: Dtype | None = None,
) -> None:
    """Take elements of a tile where a predicate holds and another value elsewhere, and reduce them."""
    target, chosen, first = resolved(dst, mask), resolved(predicate, mask), resolved(on_true, mask)
    require_block("nisa.select_reduce", Region.of(mask, tuple(dst.shape)), reduce_res is None)
    require(dtype is None or dtype == target.dtype, Rule.SELECT_DTYPE, dtype=dtype, target=target)
    ins.select_reduce(
        target,
        chosen,
        first,
        vector(on_false, target),
        place(reduce_res),
        machine(reduce_cmd),
        as_operator(reduce_op, "reduce_op"),
        reverse_pred,
    )


@listed(ISA)
def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Mask = None,
    dst_rmw_op: Any = None,
    oob_mode: Any = oob_modes.error,
    dge_mode: Any = dge_modes.unknown,
) -> None:
    """Copy between HBM and SBUF; `dst_rmw_op=np.add` adds to what is there."""
    target, source = resolved(dst, mask), resolved(src, mask)
    if dst_rmw_op is None:
        ins.dma_copy(target, source, oob_mode=machine(oob_mode), dge_mode=machine(dge_mode))
        return
    is_sum = as_operator(dst_rmw_op, "dst_rmw_op").name == "add" and machine(oob_mode) is ins.OobMode.error
    require(is_sum, Rule.DMA_OPERATOR, dst_rmw_op=dst_rmw_op, oob_mode=oob_mode)
    ins.dma_compute(target, [target, source], OPERATORS["add"])


@published(ISA, hidden={"dge_mode"})
def dma_transpose(
    src: Any,
    *,
    axes: Any = None,
    mask: Mask = None,
    dtype: Dtype | None = None,
    dge_mode: Any = dge_modes.unknown,
) -> OlderTensor:
    """Transpose a tile of HBM or SBUF while copying it to SBUF."""
    tile = resolved(src, mask)
    order = ins.AXES.get(tile.ndim, ()) if axes is None else tuple(axes)
    result = fresh(tuple(tile.shape[axis] for axis in order) or tile.shape, tile.dtype)
    ins.dma_transpose(result, tile, order, dge_mode=machine(dge_mode))
    return result if dtype is None or dtype == tile.dtype else tensor_copy(result, dtype=dtype)


@listed(ISA)
def local_gather(
    src_buffer: object,
    index: object,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    *,
    mask: Mask = None,
) -> OlderTensor:
    """Gather elements by the indices of each group of 16 partitions."""
    tile, indices = resolved(src_buffer, mask), resolved(index)
    count = indices.elements_per_partition * 16 if num_valid_indices is None else num_valid_indices
    result = fresh((tile.num_partitions, count, num_elem_per_idx), tile.dtype)
    ins.local_gather(result, tile, indices, num_elem_per_idx, num_valid_indices)
    return result


@published(ISA)
def builtin_custom_op(
    function_name: object,
    lib_file_name: object,
    ulib_to_ucode_version: object,
    ulib_to_isa_version: object,
    srcs: object,
    dsts: object,
) -> None:
    """Refuse a custom operator, which is a binary of GpSimd."""
    refuse(Rule.CUSTOM_OPERATOR, function_name=function_name, lib_file_name=lib_file_name)


@listed(ISA)
def get_nc_version() -> nc_version:
    """Return the generation of the core that the kernel runs on; the older API knows none after gen3."""
    return nc_version(min(current().generation, max(nc_version)))


_VALUES = {
    **{f"{name}_engine": engines[name] for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")},
    **{"dma_engine": "dma", "dge_mode": dge_modes, "engine": engines, "oob_mode": oob_modes, "reduce_cmd": commands},
}
_VALUES |= {**ISA, "fp32": fp32, "nc_version": nc_version}
globals().update(_VALUES)
__all__ = sorted(_VALUES)
