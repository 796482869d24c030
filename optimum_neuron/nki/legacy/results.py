"""What the instructions of the older API share: enumerations, operators, and new tiles that they write."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from .. import instructions as ins
from ..dtypes import Dtype
from ..tensor import NkiTensor
from .indexing import Mask, Region
from .tiles import IndexedTile, OlderTensor, Product, fresh, masked, older, resolved

_KINDS = {ins.name_of(kind): kind for kind in ins.ENUMS.values()}


class dge_mode(enum.IntEnum):  # noqa: N801 - the vendor's names
    """Who generates the descriptors of a DMA."""

    none, swdge, hwdge, unknown = 0, 1, 2, 3


class engine(enum.IntEnum):  # noqa: N801
    """Engines."""

    unknown, tensor, scalar, gpsimd, vector, sync = 0, 1, 2, 3, 5, 6


class nc_version(enum.IntEnum):  # noqa: N801
    """Generations of the core."""

    gen2, gen3 = 2, 3


class oob_mode(enum.IntEnum):  # noqa: N801
    """What an index outside of a tensor does."""

    error, skip = 0, 1


class reduce_cmd(enum.IntEnum):  # noqa: N801
    """What an instruction does with its engine's accumulators."""

    idle, reset, reduce, reset_reduce, load_reduce = 0, 1, 2, 3, 4


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
