"""Tensors with blocks in front of the partitions, and where tiles are placed by hand.

`nl.ndarray((4, nl.par_dim(128), 512))` is four tiles, and `tensor[2]`, `tensor[2, ip, ix]` and `tensor[2, :, 0:8]` are
parts of the third. Each tile is memory of its own. `nki.compiler` says where tiles lie: an address is checked, and two
tiles that share bytes are reported by `analyze` if both are needed at the same time; their values do not mix here.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core import Rule, current, refuse, require
from ..instructions import legal_starts
from ..memory import Address, Buffer
from .indexing import IndexTile
from .tiles import IndexedTile, OlderTensor


class ParDim(int):
    """The size of the partition dimension, as `nl.par_dim(128)`."""


class BlockedTensor:
    """Tiles by blocks; the first dimensions are those of the blocks."""

    def __init__(self, tiles: dict[tuple[int, ...], OlderTensor], blocks: tuple[int, ...]) -> None:
        self._tiles, self._blocks = tiles, blocks

    @property
    def _tile(self) -> OlderTensor:
        return next(iter(self._tiles.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of blocks, partitions, and elements."""
        return (*self._blocks, *self._tile.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self._tile.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._tile.itemsize

    @property
    def buffer(self) -> Buffer:
        """Memory it is in."""
        return self._tile.buffer

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self._tile.name.rpartition("[")[0]

    def tiles(self) -> Iterator[OlderTensor]:
        """Yield its tiles."""
        yield from self._tiles.values()

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a tensor with blocks has no elements in Python: index it")

    def __getitem__(self, key: object) -> Any:
        tile, rest = self._chosen(key)
        if isinstance(tile, BlockedTensor):
            return tile
        return tile[rest] if rest else tile

    def __setitem__(self, key: object, value: object) -> None:
        if value is self:
            return
        tile, rest = self._chosen(key)
        if isinstance(tile, BlockedTensor):
            if value is not tile:
                self._refuse(key)
            return
        tile[rest or ...] = value

    def _chosen(self, key: object) -> tuple[OlderTensor | BlockedTensor, tuple[Any, ...]]:
        keys = key if isinstance(key, tuple) else (key,)
        count = len(self._blocks)
        block = tuple(_number(item) for item in keys[:count])
        sizes = self._blocks[: len(block)]
        pairs = [(place, size) for place, size in zip(block, sizes, strict=True) if place is not None]
        if len(pairs) < len(block) or any(not -size <= place < size for place, size in pairs):
            self._refuse(key)
        places = tuple(place % size for place, size in pairs)
        if len(block) < count:
            left = {idx[len(block) :]: tile for idx, tile in self._tiles.items() if idx[: len(block)] == places}
            return BlockedTensor(left, self._blocks[len(block) :]), ()
        return self._tiles[places], tuple(keys[count:])

    def _refuse(self, key: object) -> None:
        refuse(Rule.BLOCK_INDEX, of=self, count=len(self._blocks), key=key)


def _number(item: object) -> int | None:
    if isinstance(item, int | np.integer):
        return int(item)
    if isinstance(item, np.ndarray) and item.size == 1:
        return int(item.reshape(-1)[0])
    if isinstance(item, OlderTensor | IndexedTile):
        return None
    return None if not isinstance(item, IndexTile) else int(item)


Where = Callable[..., tuple[int, ...]]
"""From block (`idx`), partitions (`pdim_size`) and bytes in a partition (`fdim_size`) to a place."""


@dataclasses.dataclass(frozen=True)
class Allocation:
    """A memory, and where the tiles of a tensor lie in it."""

    buffer: Buffer
    """SBUF or PSUM."""
    where: Where | None = None
    """Place of each block: (partition, byte), after the bank in PSUM; None leaves it to the compiler."""

    def address(self, block: tuple[int, ...], partitions: int, size_bytes: int) -> Address | None:
        """Return the place of a tile."""
        if self.where is None:
            return None
        named = {"idx": block, "pdim_size": partitions, "fdim_size": size_bytes}
        takes_names = set(named) <= set(inspect.signature(self.where).parameters)
        place = self.where(**named) if takes_names else self.where(*named.values())
        names = ["start_partition", "byte_addr"]
        if self.buffer is Buffer.psum:
            names = ["bank_id", *names]
        fits = isinstance(place, tuple | list) and len(place) == len(names)
        require(fits, Rule.ALLOCATOR_RESULT, of=self, block=block, place=place, names=f"({', '.join(names)})")
        *bank, partition, byte = map(int, place)
        problem = self._problem(bank, partition, byte, partitions, size_bytes)
        require(problem is None, Rule.ALLOCATED_ADDRESS, of=self, problem=problem)
        return Address(partition, byte + sum(bank) * current().bank_bytes())

    def _problem(self, bank: list[int], partition: int, byte: int, partitions: int, size_bytes: int) -> str | None:
        """Return what is wrong with a place; `bank` has its number in PSUM."""
        core, legal = current(), legal_starts(partitions)
        if partition not in legal:
            return f"{partitions} partitions start at {partition}, and may start at {legal}"
        first, size = byte + sum(bank) * core.bank_bytes(), core.bank_bytes()
        if bank and first // size != (first + size_bytes - 1) // size:
            return f"{size_bytes} bytes from byte {first % size} of bank {bank[0]} on, which has {size}"
        return None


def blocks_of(shape: Sequence[int], buffer: Buffer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of blocks in front of the partitions, and of each tile."""
    sizes = tuple(int(size) for size in shape)
    marked = [place for place, size in enumerate(shape) if isinstance(size, ParDim)]
    require(len(marked) <= 1, Rule.PARTITION_DIMS, shape=sizes, count=len(marked))
    if buffer.is_hbm or not marked:
        return (), sizes
    return sizes[: marked[0]], sizes[marked[0] :]


def blocked(blocks: tuple[int, ...], make: Callable[[tuple[int, ...]], OlderTensor]) -> BlockedTensor | OlderTensor:
    """Return a tensor of the tiles that a function makes for each block; one tile without blocks."""
    if not blocks:
        return make(())
    places = itertools.product(*map(range, blocks))
    return BlockedTensor({place: make(place) for place in places}, blocks)
