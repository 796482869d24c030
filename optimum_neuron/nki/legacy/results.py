"""What the instructions of the older API share: enumerations, operators, and new tiles that they write."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from .. import instructions as ins
from ..core import Rule, require
from ..dtypes import Dtype
from ..tensor import NkiTensor
from .indexing import Mask, Region
from .tiles import IndexedTile, OlderTensor, Product, fresh, masked, older, resolved

_KINDS = {ins.name_of(kind): kind for kind in ins.ENUMS.values()}


dge_mode = enum.IntEnum("dge_mode", {"none": 0, "swdge": 1, "hwdge": 2, "unknown": 3})
engine = enum.IntEnum("engine", {"unknown": 0, "tensor": 1, "scalar": 2, "gpsimd": 3, "vector": 5, "sync": 6})
nc_version = enum.IntEnum("nc_version", {"gen2": 2, "gen3": 3})
oob_mode = enum.IntEnum("oob_mode", {"error": 0, "skip": 1})
reduce_cmd = enum.IntEnum("reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4})
"""Enumerations of operands with the numbers of the older API; `machine` returns those of `nki.isa`."""


def machine(member: enum.Enum | None) -> Any:
    """Return an enumeration's member as the machine names it."""
    if member is None:
        return None
    kind = _KINDS.get(type(member).__name__)
    return member if kind is None else kind[member.name]


def new_tile(
    shape: Any, dtype: Dtype, mask: Mask | Region, write: Callable[[NkiTensor], object], *, rows_only: bool = False
) -> OlderTensor:
    """Make a tile, and let an instruction write what a mask leaves of it.

    Args:
        shape: Sizes of the tile.
        dtype: its dtype.
        mask: Mask of the instruction, or what it leaves.
        write: the instruction.
        rows_only: Whether the mask is of an operand with as many partitions, and other sizes.
    """
    result = fresh(shape, dtype)
    region = mask if isinstance(mask, Region) else Region.of(mask, tuple(shape))
    if rows_only:
        region = region.rows(result.shape)
    if not region.is_empty:
        write(result.part(region))
    return masked(result, region)


def require_block(instruction: str, region: Region, is_elementwise: bool) -> None:
    """Require a mask that leaves a block, unless each element of the result is that of one element."""
    require(is_elementwise or region.chosen is None, Rule.MASK_WITHOUT_BLOCK, instruction=instruction)


def like(data: Any, dtype: Dtype, mask: Mask, write: Callable[[NkiTensor], object]) -> OlderTensor:
    """Make a tile of the shape of another one, and let an instruction write what a mask leaves of it."""
    return new_tile(tuple(data.shape), data.dtype if dtype is None else dtype, mask, write)


def vector(value: object, data: NkiTensor) -> Any:
    """Return a number, or a vector with one element for each partition of a tile."""
    tile = resolved(value)
    if not isinstance(tile, NkiTensor):
        return tile
    if tile.elements_per_partition > 1 and not any(tile.strides[1:]):
        tile = older(tile)[:, 0:1] if tile.ndim == 2 else tile
    rows = tile if tile.num_partitions <= data.num_partitions else tile[: data.num_partitions]
    return older(rows)


def place(value: object) -> Any:
    """Return a tile that an instruction writes, given by reference."""
    tile = resolved(value) if isinstance(value, OlderTensor | IndexedTile | Product) else value
    if isinstance(tile, NkiTensor) and tile.elements_per_partition > 1 and not any(tile.strides[1:]):
        return older(tile)[:, 0:1]
    return tile
