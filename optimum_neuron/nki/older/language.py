"""`neuronxcc.nki.language`: tensors, loads and stores with masks, loops, and operators that return tiles."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..core import refuse
from ..dtypes import FORMATS
from ..memory import Buffer
from ..operators import OPERATORS
from ..tensor import NkiTensor
from .indexing import arange, extents, mgrid
from .tiles import IndexedTile, OlderTensor, Product, compute, copy_to, fresh, masked, nl, older, resolved


class par_dim(int):  # noqa: N801 - the vendor's name
    """The size of the partition dimension, `nl.par_dim(128)`."""


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    marked = [place for place, size in enumerate(shape) if isinstance(size, par_dim)]
    if marked not in ([], [0]):
        refuse(
            f"A tensor of shape {tuple(map(int, shape))} has partitions in dimension {marked[0]}: blocks of tiles in "
            "front of them are not there.",
            hint="Put the blocks in a list of Python, or behind the partitions.",
            rule="partition",
            shape=tuple(map(int, shape)),
        )
    return tuple(int(size) for size in shape)


def ndarray(shape: Sequence[int], dtype: Any, *, buffer: Buffer = Buffer.sbuf, name: str = "") -> OlderTensor:
    """Make a tensor that nothing wrote; in SBUF unless another memory is named."""
    return older(nl.ndarray(_shape(shape), dtype, buffer, name))


def full(
    shape: Sequence[int], fill_value: float, dtype: Any, *, buffer: Buffer = Buffer.sbuf, name: str = ""
) -> OlderTensor:
    """Make a tensor of one number."""
    return older(nl.full(_shape(shape), fill_value, dtype, buffer, name))


def zeros(shape: Sequence[int], dtype: Any, *, buffer: Buffer = Buffer.sbuf, name: str = "") -> OlderTensor:
    """Make a tensor of zeros."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(shape: Sequence[int], dtype: Any, *, buffer: Buffer = Buffer.sbuf, name: str = "") -> OlderTensor:
    """Make a tensor of ones."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def zeros_like(a: Any, dtype: Any = None, *, buffer: Buffer = Buffer.sbuf, name: str = "") -> OlderTensor:
    """Make zeros of the shape and dtype of another tensor."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def load(src: Any, *, mask: Any = None, dtype: Any = None) -> OlderTensor:
    """Copy from HBM to a new tile in SBUF; elements that the mask leaves out are undefined."""
    result = fresh(src.shape, src.dtype if dtype is None else dtype)
    source = resolved(src, mask)
    if source.size:
        copy_to(masked(result, mask), source)
    return result


def store(dst: Any, value: Any, *, mask: Any = None) -> None:
    """Copy a tile or a number to HBM, but for what the mask leaves out."""
    target = resolved(dst, mask)
    if not target.size:
        return
    if isinstance(value, OlderTensor | IndexedTile | Product):
        tile = resolved(value) if mask is None or value.shape != tuple(dst.shape) else resolved(value, mask)
    else:
        tile = full((target.shape[0], target.size // target.shape[0]), value, target.dtype)
    copy_to(target, nl.copy(tile) if tile.buffer is Buffer.psum else tile)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None) -> OlderTensor:
    """Copy a matrix from HBM to SBUF, transposed."""
    return older(nl.transpose(load(src, mask=mask, dtype=dtype)))


def transpose(x: Any, *, dtype: Any = None, mask: Any = None) -> OlderTensor:
    """Exchange partitions and elements of a tile."""
    return older(nl.transpose(resolved(x, mask), dtype))


def copy(src: Any, *, mask: Any = None, dtype: Any = None) -> OlderTensor:
    """Copy a tile to SBUF."""
    result = fresh(src.shape, src.dtype if dtype is None else dtype)
    copy_to(masked(result, mask), resolved(src, mask))
    return result


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> Product:
    """Return `x @ y`, or `x.T @ y`: a product that `+=` adds to a tile in PSUM."""
    from .isa import nc_matmul

    stationary = resolved(x) if transpose_x else transpose(x)
    return nc_matmul(stationary, y, mask=mask)


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None) -> OlderTensor:
    """Take x where the condition is not 0, and y elsewhere."""
    result = older(nl.where(resolved(condition), resolved(x), resolved(y), dtype))
    extents(mask, result.shape)
    return result


def _reduction(name: str) -> Any:
    modern = getattr(nl, name)

    def reduce(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = True) -> OlderTensor:
        tile = resolved(x, mask)
        if mask is None:
            return older(modern(tile, axis, dtype, keepdims))
        part = modern(tile, axis, dtype, True)
        result = fresh((x.shape[0], *part.shape[1:]), part.dtype)
        copy_to(result[: part.shape[0]], part)
        return result

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"Compute nl.{name} over the last dimensions, of what a mask leaves."
    return reduce


def softmax(x: Any, axis: Any = -1, *, dtype: Any = None, mask: Any = None) -> OlderTensor:
    """Return the softmax over the last dimensions, of what a mask leaves."""
    result = fresh(x.shape, x.dtype if dtype is None else dtype)
    copy_to(masked(result, mask), nl.softmax(resolved(x, mask), axis, dtype))
    return result


def broadcast_to(src: NkiTensor, *, shape: Sequence[int]) -> OlderTensor:
    """Repeat dimensions of size 1, without copying."""
    return older(nl.broadcast_to(resolved(src), shape))


_SAME = (
    *("affine_range", "device_print", "ds", "num_programs", "program_id", "program_ndim", "sequential_range"),
    *("static_range", "tile_size"),
)
_OWN = {
    **{one.__name__: one for one in (arange, broadcast_to, copy, full, load, load_transpose2d, matmul, ndarray, ones)},
    **{one.__name__: one for one in (par_dim, softmax, store, transpose, where, zeros, zeros_like)},
    **{name: _reduction(name) for name in ("sum", "max", "min", "mean", "prod", "var")},
    "mgrid": mgrid,
}
_NAMES = {
    **{("bool_" if name == "bool" else name): name for name in FORMATS},
    **{place.name: place for place in Buffer},
    **{name: getattr(nl, name) for name in _SAME},
    **{name: functools.partial(compute, operator) for name, operator in OPERATORS.items() if name not in _OWN},
    **_OWN,
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
