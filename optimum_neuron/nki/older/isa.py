"""`neuronxcc.nki.isa`: instructions that return their result as a new tile.

Arithmetic is here; moves, gathers and searches are in `moves.py`.
"""

from __future__ import annotations

from typing import Any

from .. import instructions as ins
from ..core import current
from ..language import promoted
from ..memory import Buffer
from ..tensor import NkiTensor
from .creation import refuse_unknown
from .indexing import Region
from .moves import MOVES, transposed
from .results import (
    dge_mode,
    engine as engines,
    like,
    machine,
    nc_version,
    new_tile,
    oob_mode,
    operator,
    place,
    reduce_cmd as commands,
    vector,
)
from .tiles import OlderTensor, Product, expect, older, resolved

_PERF_MODES = {"double_row": "double_row", "double_row_gen3": "double_row"}


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Any = None,
    **kwargs: Any,
) -> Product:
    """Return `stationary.T @ moving`: a product that `+=` adds to a tile in PSUM."""
    refuse_unknown("nc_matmul", kwargs, {"perf_mode"})
    mode = kwargs.get("perf_mode")
    rows = 2 if mode in _PERF_MODES else 1
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
        "perf_mode": ins.MatmulPerfMode(_PERF_MODES.get(str(mode), "none")),
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
    copy = older(ins_copy(tile))
    return copy


def ins_copy(tile: NkiTensor) -> NkiTensor:
    """Copy a tile to SBUF."""
    from .tiles import nl

    result: NkiTensor = nl.copy(tile)
    return result


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = engines.unknown, **kwargs: Any
) -> OlderTensor:
    """Transpose a tile: to PSUM on the tensor engine, to SBUF on the vector engine."""
    refuse_unknown("nc_transpose", kwargs)
    return transposed(data, mask, dtype, machine(engine))


def activation(
    op: Any,
    data: Any,
    *,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Any = None,
    reduce_cmd: Any = commands.idle,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `op(data * scale + bias)` on the scalar engine."""
    refuse_unknown("activation", kwargs)
    one, tile = operator(op), resolved(data, mask)
    by, plus = vector(scale, tile), None if bias is None else vector(bias, tile)
    reduction = None if reduce_op is None else operator(reduce_op, "reduce_op")
    total, command = place(reduce_res), machine(reduce_cmd)
    return like(data, dtype, mask, lambda dst: ins.activation(dst, one, tile, plus, by, reduction, total, command))


def activation_reduce(
    op: Any,
    data: Any,
    *,
    reduce_op: Any,
    reduce_res: Any,
    bias: Any = None,
    scale: Any = 1.0,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `op(data * scale + bias)`, and reduce the elements of each partition to `reduce_res`."""
    refuse_unknown("activation_reduce", kwargs)
    one, tile, reduction = operator(op), resolved(data, mask), operator(reduce_op, "reduce_op")
    by, plus, total = vector(scale, tile), None if bias is None else vector(bias, tile), place(reduce_res)
    return like(data, dtype, mask, lambda dst: ins.activation_reduce(dst, one, tile, reduction, total, plus, by))


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = engines.unknown,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `data1 op data2`, element by element."""
    refuse_unknown("tensor_tensor", kwargs)
    one, left, right = operator(op), resolved(data1, mask), resolved(data2, mask)
    if left.buffer is right.buffer is Buffer.psum:
        right = ins_copy(right)
    kind = promoted(left, right) if dtype is None else dtype
    return like(data1, kind, mask, lambda dst: ins.tensor_tensor(dst, left, right, one, machine(engine)))


def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Any = engines.unknown,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `(data op0 operand0) op1 operand1`; operands are numbers, or vectors [partitions, 1]."""
    refuse_unknown("tensor_scalar", kwargs)
    tile, first = resolved(data, mask), operator(op0, "op0")
    second = None if op1 is None else operator(op1, "op1")
    left, right = vector(operand0, tile), vector(operand1, tile)
    return like(
        data,
        dtype,
        mask,
        lambda dst: ins.tensor_scalar(dst, tile, first, left, reverse0, second, right, reverse1, machine(engine)),
    )


def tensor_scalar_reduce(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Any,
    reverse0: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `data op0 operand0`, and reduce the elements of each partition to `reduce_res`."""
    refuse_unknown("tensor_scalar_reduce", kwargs)
    tile, first, reduction = resolved(data, mask), operator(op0, "op0"), operator(reduce_op, "reduce_op")
    left, total = vector(operand0, tile), place(reduce_res)
    return like(
        data,
        dtype,
        mask,
        lambda dst: ins.tensor_scalar_reduce(dst, tile, first, left, reduction, total, reverse0),
    )


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> OlderTensor:
    """Compute `(data op0 operand0) op1 operand1`; operand0 is a number or a vector, operand1 a tile."""
    refuse_unknown("scalar_tensor_tensor", kwargs)
    tile, first, second = resolved(data, mask), operator(op0, "op0"), operator(op1, "op1")
    left, right = vector(operand0, tile), resolved(operand1, mask)
    return like(
        data,
        dtype,
        mask,
        lambda dst: ins.scalar_tensor_tensor(dst, tile, first, left, second, right, reverse0, reverse1),
    )


def tensor_reduce(
    op: Any,
    data: Any,
    axis: Any,
    *,
    mask: Any = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **kwargs: Any,
) -> OlderTensor:
    """Reduce the last dimensions of what a mask leaves of a tile."""
    refuse_unknown("tensor_reduce", kwargs)
    axes = tuple(sorted(dim % len(data.shape) for dim in ((axis,) if isinstance(axis, int) else axis)))
    tile, one = resolved(data, mask), operator(op)
    kept = tuple(size for dim, size in enumerate(data.shape) if dim not in axes)
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(data.shape)) if keepdims else kept
    region = Region.of(mask, tuple(data.shape))
    return new_tile(
        shape if len(shape) > 1 else (*shape, 1),
        tile.dtype if dtype is None else dtype,
        region,
        lambda dst: ins.tensor_reduce(dst, one, tile, axes, negate, keepdims),
        rows_only=True,
    )


def tensor_partition_reduce(op: Any, data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> OlderTensor:
    """Reduce the partitions of a tile to one."""
    refuse_unknown("tensor_partition_reduce", kwargs)
    one, tile = operator(op), resolved(data, mask)
    return new_tile(
        (1, *data.shape[1:]),
        tile.dtype if dtype is None else dtype,
        None,
        lambda dst: ins.tensor_partition_reduce(dst, one, tile),
    )


def tensor_tensor_scan(
    data0: Any,
    data1: Any,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> OlderTensor:
    """Scan along the elements of a partition: `(data0 op0 previous) op1 data1`, from `initial` on."""
    refuse_unknown("tensor_tensor_scan", kwargs)
    left, right = resolved(data0, mask), resolved(data1, mask)
    first, second, start = operator(op0, "op0"), operator(op1, "op1"), vector(initial, left)
    kind = promoted(left, right) if dtype is None else dtype
    return like(
        data0,
        kind,
        mask,
        lambda dst: ins.tensor_tensor_scan(dst, left, right, start, first, second, reverse0, reverse1),
    )


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> OlderTensor:
    """Compute `1 / data`."""
    refuse_unknown("reciprocal", kwargs)
    tile = resolved(data, mask)
    return like(data, dtype, mask, lambda dst: ins.reciprocal(dst, tile))


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> OlderTensor:
    """Return count, mean and variance * count of the even and of the odd elements of each partition."""
    refuse_unknown("bn_stats", kwargs)
    tile, region = resolved(data, mask), Region.of(mask, tuple(data.shape))
    kind = tile.dtype if dtype is None else dtype
    return new_tile((data.shape[0], 6), kind, region, lambda dst: ins.bn_stats(dst, tile), rows_only=True)


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> OlderTensor:
    """Return mean and variance of the statistics of one or more bn_stats."""
    refuse_unknown("bn_aggr", kwargs)
    tile, region = resolved(data, mask), Region.of(mask, tuple(data.shape))
    kind = tile.dtype if dtype is None else dtype
    return new_tile((data.shape[0], 2), kind, region, lambda dst: ins.bn_aggr(dst, tile), rows_only=True)


def get_nc_version() -> nc_version:
    """Return the generation of the core that the kernel runs on; the older API knows none after gen3."""
    return nc_version(min(current().generation, max(nc_version)))


class fp32:  # noqa: N801 - the vendor's name
    """Limits of float32."""

    min = -3.4028234663852886e38


_VALUES = {
    **{f"{name}_engine": engines[name] for name in ("tensor", "vector", "scalar", "gpsimd", "unknown")},
    **{"dma_engine": "dma", "dge_mode": dge_mode, "engine": engines, "oob_mode": oob_mode, "reduce_cmd": commands},
}
globals().update({**MOVES, **_VALUES})
_OWN = (
    *(activation, activation_reduce, bn_aggr, bn_stats, fp32, get_nc_version, nc_matmul, nc_transpose, nc_version),
    *(reciprocal, scalar_tensor_tensor, tensor_partition_reduce, tensor_reduce, tensor_scalar, tensor_scalar_reduce),
    *(tensor_tensor, tensor_tensor_scan),
)
__all__ = sorted([*(function.__name__ for function in _OWN), *MOVES, *_VALUES])
