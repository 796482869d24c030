"""`neuronxcc.nki.isa`: instructions that return their result as a new tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .. import instructions as ins
from ..memory import Buffer
from ..operators import as_operator
from ..tensor import NkiTensor
from .tiles import OlderTensor, Product, fresh, masked, resolved

Engine = ins.Engine


def _run(like: Any, dtype: Any, mask: Any, write: Callable[[NkiTensor], None]) -> OlderTensor:
    """Make a tile of the shape of another one, and write what a mask leaves of it."""
    result = fresh(tuple(like.shape), like.dtype if dtype is None else dtype)
    target = masked(result, mask)
    if target.size:
        write(target)
    return result


def _operator(op: Any, name: str) -> Any:
    """Return an operator, given as a function of the older language, of NumPy, or as an operator."""
    return as_operator(op.args[0] if hasattr(op, "args") else op, name)


def nc_matmul(stationary: Any, moving: Any, *, is_transpose: bool = False, mask: Any = None) -> Product:
    """Return `stationary.T @ moving`: a product that `+=` adds to a tile in PSUM."""
    left, right = resolved(stationary), resolved(moving)

    def run(dst: NkiTensor, accumulate: bool) -> None:
        part = masked(dst, mask) if isinstance(dst, OlderTensor) else dst
        columns, moved = part.num_partitions, part.elements_per_partition
        ins.nc_matmul(part, left[:, :columns], right[:, :moved], is_transpose=is_transpose, accumulate=accumulate)

    return Product((left.elements_per_partition, right.elements_per_partition), run)


def nc_transpose(data: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown) -> OlderTensor:
    """Transpose a tile: to PSUM on the tensor engine, to SBUF on the vector engine."""
    tile = resolved(data, mask)
    shape = (tile.elements_per_partition, tile.num_partitions)
    on_vector = engine is Engine.vector or (engine is Engine.unknown and max(shape) <= 32)
    result = fresh(shape, tile.dtype, Buffer.sbuf if on_vector else Buffer.psum)
    ins.nc_transpose(result, tile, Engine.vector if on_vector else Engine.tensor)
    if dtype is None or dtype == tile.dtype:
        return result
    return tensor_copy(result, dtype=dtype)


def activation(
    op: Any, data: Any, *, bias: Any = None, scale: Any = 1.0, mask: Any = None, dtype: Any = None
) -> OlderTensor:
    """Compute `op(data * scale + bias)` on the scalar engine."""
    one, by, tile = _operator(op, "op"), resolved(scale), resolved(data, mask)
    plus = None if bias is None else resolved(bias)
    if isinstance(plus, NkiTensor):
        plus = plus[: tile.num_partitions]
    if isinstance(by, NkiTensor):
        by = by[: tile.num_partitions]
    return _run(data, dtype, mask, lambda dst: ins.activation(dst, one, tile, plus, by))


def tensor_tensor(
    data1: Any, data2: Any, op: Any, *, dtype: Any = None, mask: Any = None, engine: Engine = Engine.unknown
) -> OlderTensor:
    """Compute `data1 op data2`, element by element."""
    operator, left, right = _operator(op, "op"), resolved(data1, mask), resolved(data2, mask)
    return _run(data1, dtype, mask, lambda dst: ins.tensor_tensor(dst, left, right, operator, engine))


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
    engine: Engine = Engine.unknown,
) -> OlderTensor:
    """Compute `(data op0 operand0) op1 operand1`; operands are numbers, or vectors [partitions, 1]."""
    tile, first = resolved(data, mask), _operator(op0, "op0")
    second = None if op1 is None else _operator(op1, "op1")
    operands = [resolved(value) for value in (operand0, operand1)]
    left, right = (value[: tile.num_partitions] if isinstance(value, NkiTensor) else value for value in operands)
    return _run(
        data,
        dtype,
        mask,
        lambda dst: ins.tensor_scalar(dst, tile, first, left, reverse0, second, right, reverse1, engine),
    )


def tensor_reduce(
    op: Any, data: Any, axis: Any, *, mask: Any = None, dtype: Any = None, negate: bool = False, keepdims: bool = False
) -> OlderTensor:
    """Reduce the last dimensions of what a mask leaves of a tile."""
    axes = tuple(sorted(dim % len(data.shape) for dim in ((axis,) if isinstance(axis, int) else axis)))
    tile, operator = resolved(data, mask), _operator(op, "op")
    kept = tuple(size for dim, size in enumerate(data.shape) if dim not in axes)
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(data.shape)) if keepdims else kept
    result = fresh(shape if len(shape) > 1 else (*shape, 1), tile.dtype if dtype is None else dtype)
    ins.tensor_reduce(result[: tile.num_partitions], operator, tile, axes, negate, keepdims)
    return result


def tensor_copy(src: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown) -> OlderTensor:
    """Copy a tile to SBUF."""
    tile = resolved(src, mask)
    return _run(src, dtype, mask, lambda dst: ins.tensor_copy(dst, tile, engine))


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None) -> OlderTensor:
    """Compute `1 / data`."""
    tile = resolved(data, mask)
    return _run(data, dtype, mask, lambda dst: ins.reciprocal(dst, tile))


def memset(shape: Any, value: float, dtype: Any, *, engine: Engine = Engine.unknown) -> OlderTensor:
    """Make a tile of one number."""
    result = fresh(tuple(int(size) for size in shape), dtype)
    ins.memset(result, value, engine)
    return result


def iota(expr: Any, dtype: Any) -> OlderTensor:
    """Make a tile of the values of an expression of index tiles."""
    values = np.asarray(expr)
    result = fresh(values.shape, dtype)
    first, steps = int(values.flat[0]), []
    for dim, size in enumerate(values.shape):
        second = tuple(int(other == dim and size > 1) for other in range(values.ndim))
        steps.append(int(values[second]) - first)
    pairs = [[step, size] for step, size in zip(steps[1:], values.shape[1:], strict=True)]
    ins.iota(result, pairs, offset=first, channel_multiplier=steps[0])
    return result


def affine_select(pred: Any, on_true_tile: Any, on_false_value: float, *, dtype: Any = None) -> OlderTensor:
    """Take elements where a comparison of index tiles holds, and a number elsewhere.

    The instruction computes its comparison; here it is an array of its results, in a tile that costs nothing.
    """
    tile = resolved(on_true_tile)
    predicate = fresh(tile.shape, "uint8")
    predicate.write_constant(torch.from_numpy(np.array(np.broadcast_to(pred, tile.shape), dtype=np.uint8)))

    def write(dst: NkiTensor) -> None:
        ins.memset(dst, on_false_value)
        source = tile if tile.dtype == dst.dtype else tensor_copy(tile, dtype=dst.dtype)
        ins.tensor_copy_predicated(dst, source, predicate)

    return _run(on_true_tile, dtype, None, write)


def bn_stats(data: Any, *, mask: Any = None, dtype: Any = None) -> OlderTensor:
    """Return count, mean and variance * count of the even and of the odd elements of each partition."""
    tile = resolved(data, mask)
    result = fresh((data.shape[0], 6), "float32" if dtype is None else dtype)
    ins.bn_stats(result[: tile.num_partitions], tile)
    return result


def bn_aggr(data: Any, *, mask: Any = None, dtype: Any = None) -> OlderTensor:
    """Return mean and variance of the statistics of one or more bn_stats."""
    tile = resolved(data, mask)
    result = fresh((data.shape[0], 2), "float32" if dtype is None else dtype)
    ins.bn_aggr(result[: tile.num_partitions], tile)
    return result


def tensor_tensor_scan(
    data0: Any, data1: Any, initial: Any, op0: Any, op1: Any, *, dtype: Any = None, mask: Any = None
) -> OlderTensor:
    """Scan along the elements of a partition: `(data0 op0 previous) op1 data1`, from `initial` on."""
    left, right, start = resolved(data0, mask), resolved(data1, mask), resolved(initial)
    first, second = _operator(op0, "op0"), _operator(op1, "op1")
    return _run(data0, dtype, mask, lambda dst: ins.tensor_tensor_scan(dst, left, right, start, first, second))


tensor_engine, vector_engine, scalar_engine = Engine.tensor, Engine.vector, Engine.scalar
gpsimd_engine, unknown_engine = Engine.gpsimd, Engine.unknown

__all__ = [
    *("activation", "affine_select", "bn_aggr", "bn_stats", "gpsimd_engine", "iota", "memset", "nc_matmul"),
    *("nc_transpose", "reciprocal", "scalar_engine", "tensor_copy", "tensor_engine", "tensor_reduce", "tensor_scalar"),
    *("tensor_tensor", "tensor_tensor_scan", "unknown_engine", "vector_engine"),
]
