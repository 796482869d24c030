"""`neuronxcc.nki.isa`: instructions that return their result as a new tile.

Instructions that need no other change are rows of `adapters.py`. Moves are in `moves.py`, the others here.
"""

from __future__ import annotations

from typing import Any

from .. import instructions as ins
from ..core import current
from ..dtypes import Dtype
from ..memory import Buffer
from ..operators import as_operator
from ..tensor import NkiTensor
from . import adapters as adapters, moves as moves
from .indexing import Mask, Region
from .published import ISA, listed, published
from .results import (
    dge_mode,
    engine as engines,
    nc_version,
    new_tile,
    oob_mode,
    reduce_cmd as commands,
)
from .tiles import OlderTensor, Product, expect, nl, older, resolved

_PERF_MODES = {"double_row": "double_row", "double_row_gen3": "double_row"}


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
    tile, one = resolved(data, mask), as_operator(op)
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


@published(ISA)
def tensor_partition_reduce(op: Any, data: Any, *, mask: Mask = None, dtype: Dtype | None = None) -> OlderTensor:
    """Reduce the partitions of a tile to one."""
    one, tile = as_operator(op), resolved(data, mask)
    return new_tile(
        (1, *data.shape[1:]),
        tile.dtype if dtype is None else dtype,
        None,
        lambda dst: ins.tensor_partition_reduce(dst, one, tile),
    )


@listed(ISA)
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
_VALUES |= {**ISA, "fp32": fp32, "nc_version": nc_version}
globals().update(_VALUES)
__all__ = sorted(_VALUES)
