"""Where tiles may lie: the partitions that an engine reaches, and the banks of PSUM."""

from __future__ import annotations

from ..core import Core, Rule, refuse, require
from ..microscaling import QUADRANT
from ..tensor import NkiTensor

MAX_PARTITIONS = 128


def legal_starts(count: int) -> tuple[int, ...]:
    """Return the partitions at which so many may start."""
    return (0,) if count > 64 else (0, 64) if count > 32 else (0, 32, 64, 96)


def _start(tile: NkiTensor) -> int:
    return tile.offset // max(1, tile.storage.row)


def starts_where_engines_reach(tile: NkiTensor) -> bool:
    """Return whether engines reach a tile, because it is in HBM or its partitions start at a legal one."""
    return tile.buffer.is_hbm or _start(tile) % MAX_PARTITIONS in legal_starts(tile.num_partitions)


def require_partitions(opcode: str, name: str, tile: NkiTensor, in_quadrant: tuple[int, ...]) -> None:
    """Require partitions that start where they may, or at some of each 32, and that follow each other."""
    count, start, per_partition = tile.num_partitions, _start(tile), tile.storage.row
    places = in_quadrant or legal_starts(count)
    fits = starts_where_engines_reach(tile) or start % QUADRANT in in_quadrant
    require(fits, Rule.START_PARTITION, opcode=opcode, operand=name, count=count, start=start, places=places)
    is_next = count <= 1 or tile.strides[0] in (0, per_partition)
    require(is_next, Rule.PARTITION_STEP, opcode=opcode, operand=name, tile=tile, per_partition=per_partition)


def require_bank(opcode: str, name: str, tile: NkiTensor, core: Core) -> None:
    """Require a tile within one bank of PSUM."""
    size, bank = tile.storage.format.size_bytes, core.bank_bytes()
    per_partition = tile.storage.bytes_per_partition
    if not tile.size:
        return
    first = tile.offset * size % max(1, per_partition)
    steps = zip(tile.shape[1:], tile.strides[1:], strict=True)
    last = first + sum((count - 1) * step for count, step in steps) * size + size - 1
    if first // bank != last // bank:
        refuse(Rule.PSUM_BANK, opcode=opcode, operand=name, first=first, last=last, bank=bank, most=bank // size)
