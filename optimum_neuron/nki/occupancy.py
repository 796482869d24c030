"""How much of SBUF and PSUM the tiles of a recorded stream need at the same time.

A tile lives from its first use to its last, in program order. Their sum is what any placement needs at least: gaps
between tiles, and tiles that live longer because loops overlap, come on top.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Sequence

from .core import PlainData, Record
from .timeline import last_uses


@dataclasses.dataclass(frozen=True)
class Tile(PlainData):
    """One tensor on the chip."""

    name: str
    line: str
    bytes_per_partition: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Occupancy(PlainData):
    """One memory of the core while a kernel runs."""

    buffer: str
    """"sbuf" or "psum"."""
    capacity: int
    """Bytes of a partition."""
    peak: int
    """Most bytes of a partition that tiles need at the same time."""
    peak_at: int | None
    """Number of the first instruction that needs so many; None without tiles."""
    peak_tiles: tuple[Tile, ...]
    """Tiles that live then, the largest first."""
    overflow_line: str | None
    """Line of the first instruction that needs more than there is; None if all fits."""
    levels: tuple[tuple[int, int], ...]
    """Bytes from an instruction on, [instruction, bytes], where they change."""


def occupancy(stream: Sequence[Record], buffer: str, capacity: int) -> Occupancy:
    """Return what the tiles of a memory need, instruction by instruction."""
    last, tiles = last_uses(stream), {}
    for number, record in enumerate(stream):
        for access in record.accesses:
            if access.buffer == buffer and access.storage not in tiles:
                facts = access.name, access.created, access.bytes_per_partition
                tiles[access.storage] = Tile(*facts, number, last[access.storage])
    changes: collections.Counter[int] = collections.Counter()
    for tile in tiles.values():
        changes[tile.first] += tile.bytes_per_partition
        changes[tile.last + 1] -= tile.bytes_per_partition
    numbers = sorted(changes)
    levels = [*zip(numbers, itertools.accumulate(changes[number] for number in numbers), strict=True)]
    peak_at, peak = max(levels, key=lambda pair: pair[1], default=(None, 0))
    over = next((number for number, level in levels if level > capacity), None)
    living = [] if peak_at is None else [tile for tile in tiles.values() if tile.first <= peak_at <= tile.last]
    return Occupancy(
        buffer=buffer,
        capacity=capacity,
        peak=peak,
        peak_at=peak_at,
        peak_tiles=tuple(sorted(living, key=lambda tile: -tile.bytes_per_partition)),
        overflow_line=None if over is None else stream[over].line,
        levels=tuple(levels),
    )
