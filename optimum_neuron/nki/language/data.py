"""Loads, stores, random numbers, and functions of tiles that are more than one operator."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from .. import instructions as ins
from ..core import Rule, require
from ..dtypes import Dtype
from ..memory import Buffer
from ..operators import OPERATORS
from ..tensor import NkiTensor
from .creation import copy, ndarray
from .elementwise import apply, broadcast_shape, expanded, promoted


def load(src: NkiTensor, dtype: Dtype | None = None) -> NkiTensor:
    """Copy from HBM to a new tile in SBUF, whose partitions are dimension 0."""
    source = src.reshape((src.size, 1)) if src.ndim < 2 else src
    result = ndarray(source.shape, src.dtype if dtype is None else dtype)
    ins.dma_copy(result, source)
    return result


def store(dst: NkiTensor, value: object) -> None:
    """Copy a tile, or a number, to HBM."""
    tile = value
    if not isinstance(value, NkiTensor):
        tile = ndarray((dst.shape[0], dst.size // dst.shape[0]), dst.dtype)
        ins.memset(tile, value)
    ins.dma_copy(dst, tile)


def load_transpose2d(src: NkiTensor, dtype: Dtype | None = None) -> NkiTensor:
    """Copy a matrix from HBM to SBUF, transposed: 128 rows at a time."""
    rows, columns = src.shape
    result = ndarray((columns, rows), src.dtype if dtype is None else dtype)
    for first in range(0, rows, 128):
        part = load(src[first : builtins.min(first + 128, rows)], dtype)
        moved = ndarray((columns, part.num_partitions), part.dtype, Buffer.psum)
        ins.nc_transpose(moved, part, ins.Engine.tensor)
        ins.tensor_copy(result[:, first : first + part.num_partitions], moved)
    return result


def transpose(x: NkiTensor, dtype: Dtype | None = None) -> NkiTensor:
    """Exchange partitions and elements of a tile."""
    result = ndarray((x.elements_per_partition, x.num_partitions), x.dtype, Buffer.psum)
    ins.nc_transpose(result, x, ins.Engine.tensor)
    return copy(result, dtype)


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """Compute `x @ y`, or `x.T @ y`, into PSUM."""
    stationary = x if transpose_x else transpose(x)
    result = ndarray((stationary.elements_per_partition, y.elements_per_partition), "float32", Buffer.psum)
    ins.nc_matmul(result, stationary, y)
    return result


def broadcast_to(x: NkiTensor, shape: Sequence[int], dtype: Dtype | None = None) -> NkiTensor:
    """Repeat dimensions of size 1; without a copy, if the dtype stays."""
    result = expanded(x, tuple(shape))
    return result if dtype is None else copy(result, dtype)


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """Insert a dimension of size 1."""
    return x.expand_dim(axis if axis >= 0 else axis + x.ndim + 1)


def where(condition: NkiTensor, x: object, y: object, dtype: Dtype | None = None) -> NkiTensor:
    """Take x where the condition is not 0, and y elsewhere."""
    tiles = [value for value in (condition, x, y) if isinstance(value, NkiTensor)]
    shape = broadcast_shape("where", *tiles)
    values = [value for value in (x, y) if isinstance(value, NkiTensor)]
    result = ndarray(shape, (promoted(*values) if values else "float32") if dtype is None else dtype)
    if isinstance(y, NkiTensor):
        ins.tensor_copy(result, expanded(y, shape))
    else:
        ins.memset(result, y)
    predicate = ndarray(shape, "uint8")
    ins.tensor_scalar(predicate, expanded(condition, shape), OPERATORS["not_equal"], 0)
    source = copy(expanded(x, shape), result.dtype) if isinstance(x, NkiTensor) else x
    ins.tensor_copy_predicated(result, source, predicate)
    return result


def ds(start: Any, size: int) -> slice:
    """Name `size` elements from start on, which may be a register."""
    return slice(int(start), int(start) + int(size))


def _reduced(op: str, x: NkiTensor, axis: Any, dtype: Dtype, keepdims: bool) -> NkiTensor:
    axes = tuple(sorted(dim % x.ndim for dim in ((axis,) if isinstance(axis, int) else axis)))
    require(0 not in axes, Rule.REDUCED_PARTITIONS, x=x, axis=axes)
    others = [dim for dim in range(x.ndim) if dim not in axes]
    kept = tuple(x.shape[dim] for dim in others)
    shape = tuple(1 if dim in axes else size for dim, size in enumerate(x.shape))
    sizes = shape if keepdims else kept if len(kept) > 1 else (*kept, 1)
    result = ndarray(sizes, x.dtype if dtype is None else dtype)
    order = (*others, *axes)  # an access pattern reads dimensions in any order
    last = tuple(range(len(others), x.ndim))
    ins.tensor_reduce(result, OPERATORS[op], x if order == tuple(range(x.ndim)) else x.permute(order), last)
    return result


def _reduction(name: str, op: str, doc: str) -> Callable[..., NkiTensor]:
    def reduction(x: NkiTensor, axis: object, dtype: Dtype | None = None, keepdims: bool = False) -> NkiTensor:
        return _reduced(op, x, axis, dtype, keepdims)

    reduction.__name__ = reduction.__qualname__ = name
    reduction.__doc__ = doc
    return reduction


sum = _reduction("sum", "add", "Add the last dimensions; a tile on the chip keeps one element for each partition.")
prod = _reduction("prod", "multiply", "Multiply the last dimensions.")
max = _reduction("max", "maximum", "Return the maximum of the last dimensions.")
min = _reduction("min", "minimum", "Return the minimum of the last dimensions.")


def mean(x: NkiTensor, axis: object, dtype: Dtype | None = None, keepdims: bool = False) -> NkiTensor:
    """Return the mean of the last dimensions."""
    total = _reduced("add", x, axis, "float32", keepdims)
    count = x.size // total.size
    return apply(OPERATORS["multiply"], total, 1.0 / count, dtype=x.dtype if dtype is None else dtype)


def var(x: NkiTensor, axis: object, dtype: Dtype | None = None, keepdims: bool = False) -> NkiTensor:
    """Return the variance of the last dimensions."""
    centered = apply(OPERATORS["subtract"], x, mean(x, axis, "float32", keepdims=True), dtype="float32")
    return mean(apply(OPERATORS["square"], centered), axis, x.dtype if dtype is None else dtype, keepdims)


def all(x: NkiTensor, axis: object, dtype: Dtype | None = None) -> NkiTensor:  # noqa: A001
    """Return 1 where all elements of the last dimensions are not 0, and 0 elsewhere."""
    holds = apply(OPERATORS["not_equal"], x, 0, dtype="float32")
    return _reduced("minimum", holds, axis, x.dtype if dtype is None else dtype, False)


def rms_norm(
    x: NkiTensor,
    w: NkiTensor,
    axis: object,
    n: int,
    epsilon: float = 1e-6,
    dtype: Dtype | None = None,
    compute_dtype: object = None,
) -> NkiTensor:
    """Return `x / sqrt(sum(x * x) / n + epsilon) * w`; the sum is over the last dimensions.

    The square root and its factors are float32; `compute_dtype` is the dtype of the products.
    """
    kind = "float32" if compute_dtype is None else compute_dtype
    total = _reduced("add", apply(OPERATORS["square"], x, dtype=kind), axis, "float32", True)
    mean = ndarray(total.shape, "float32")
    ins.tensor_scalar(mean, total, OPERATORS["multiply"], 1 / n, op1=OPERATORS["add"], operand1=epsilon)
    factor = apply(OPERATORS["rsqrt"], mean)
    normal = apply(OPERATORS["multiply"], x, factor, dtype=kind)
    return apply(OPERATORS["multiply"], normal, w, dtype=x.dtype if dtype is None else dtype)


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Dtype | None = None) -> NkiTensor:
    """Take the elements of each partition that its indices name, counted over all dimensions after `axis`.

    Raises:
        KernelError: the axis is not that of the partitions, or an index is outside.
    """
    require(axis == 0, Rule.GATHER_AXIS, axis=axis)
    result = ndarray(indices.shape, data.dtype)
    ins.nc_n_gather(result, data, indices)
    return result if dtype is None else copy(result, dtype)


def softmax(x: NkiTensor, axis: object = -1, dtype: Dtype | None = None) -> NkiTensor:
    """Return the softmax over the last dimensions."""
    highest = _reduced("maximum", x, axis, "float32", True)
    powers = ndarray(x.shape, "float32")
    ins.activation(powers, OPERATORS["exp"], apply(OPERATORS["subtract"], x, highest, dtype="float32"))
    total = apply(OPERATORS["reciprocal"], _reduced("add", powers, axis, "float32", True))
    return apply(OPERATORS["multiply"], powers, total, dtype=x.dtype if dtype is None else dtype)


def rand(shape: Sequence[int], dtype: Dtype, buffer: Buffer = Buffer.sbuf, name: str = "") -> NkiTensor:
    """Make a tensor of uniform numbers from 0 to 1, of 24 random bits each."""
    result = ndarray(shape, dtype, buffer, name)
    bits = ndarray(shape, "uint32")
    ins.rng(bits)
    ins.tensor_scalar(bits, bits, OPERATORS["right_shift"], 8)
    tile = result if buffer.is_on_chip else ndarray(shape, dtype)
    ins.tensor_scalar(tile, bits, OPERATORS["multiply"], 2.0**-24)
    if not buffer.is_on_chip:
        ins.dma_copy(result, tile)
    return result


def random_seed(seed: NkiTensor) -> None:
    """Seed the random numbers with a tile of one element."""
    ins.set_rng_seed(seed)


def dropout(x: NkiTensor, rate: object, dtype: Dtype | None = None) -> NkiTensor:
    """Replace elements by 0 with a probability, a number or a vector; the others are not scaled."""
    result = ndarray(x.shape, x.dtype)
    ins.dropout(result, x, rate)
    return result if dtype is None else copy(result, dtype)


__all__ = [
    *("all", "broadcast_to", "dropout", "ds", "expand_dims", "gather_flattened", "load", "load_transpose2d"),
    *("matmul", "max", "mean", "min", "prod", "rand", "random_seed", "rms_norm", "softmax", "store", "sum"),
    *("transpose", "var", "where"),
]
