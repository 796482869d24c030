"""Rules that several instructions share: equal sizes, vectors, dtypes, places of tiles, and accumulators."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ...errors import UnknownKeywordError, nearest
from ..core import Core, Rule, kernel_line, quoted, refuse, require
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor

INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"})
MAX_PARTITIONS = 128
QUADRANT = 32
"""Partitions that some instructions divide the others into."""


def known_keywords(opcode: str, given: Iterable[str], names: Sequence[str]) -> None:
    """Require keywords that a function has."""
    for keyword in given:
        if keyword not in names:
            line, message = kernel_line(), f"{opcode} has no parameter '{keyword}'{nearest(keyword, names) or '.'}"
            details = {"rule": "keyword", "line": line, "instruction": opcode, "keyword": keyword}
            raise UnknownKeywordError(message + quoted(line), hint=f"It has {', '.join(names)}.", **details)


def same_size(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles with as many partitions, and as many elements in each."""
    (first, head), *others = tiles.items()
    for name, tile in others:
        if head.extent != tile.extent:
            refuse(Rule.SAME_SIZE, opcode=opcode, first=first, head=head, name=name, tile=tile)


def not_indirect(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles whose elements no indices in memory choose."""
    for name, tile in tiles.items():
        require(not tile.is_indirect(), Rule.SCATTERED_RESULT, opcode=opcode, operand=name)


def same_partitions(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles with as many partitions."""
    (first, head), *others = tiles.items()
    for name, tile in others:
        is_same = head.num_partitions == tile.num_partitions
        require(is_same, Rule.SAME_PARTITIONS, opcode=opcode, first=first, head=head, name=name, tile=tile)


def multiple(opcode: str, operand: str, what: str, size: int, step: int) -> None:
    """Require a size that is a multiple of a number."""
    require(size % step == 0, Rule.MULTIPLE, opcode=opcode, operand=operand, what=what, size=size, step=step)


def yields(opcode: str, operand: str, dst: NkiTensor, wanted: tuple[int, int], **sources: NkiTensor) -> None:
    """Require a result of so many partitions and elements in each."""
    if dst.extent != wanted:
        shapes = [f"{name} {tile.shape}" for name, tile in sources.items()]
        refuse(Rule.RESULT, opcode=opcode, operand=operand, dst=dst, shapes=shapes, wanted=wanted)


def same_elements(opcode: str, dst: NkiTensor, src: NkiTensor) -> None:
    """Require as many elements in all."""
    require(dst.size == src.size, Rule.SAME_ELEMENTS, opcode=opcode, src=src, dst=dst)


def limit(opcode: str, what: str, value: int, maximum: int) -> None:
    """Require a size of at most a maximum."""
    require(value <= maximum, Rule.MAXIMUM, opcode=opcode, what=what, value=value, maximum=maximum)


def not_both_in_psum(opcode: str, **tiles: object) -> None:
    """Require that at most one of the tiles is in PSUM."""
    inside = [name for name, tile in tiles.items() if isinstance(tile, NkiTensor) and tile.buffer is Buffer.psum]
    require(len(inside) <= 1, Rule.BOTH_IN_PSUM, opcode=opcode, names=inside)


def is_among(opcode: str, parameter: str, value: Any, choices: Any) -> None:
    """Require one of a few values."""
    if value not in choices:
        refuse(Rule.CHOICE, opcode=opcode, operand=parameter, value=value, choices=choices)


def dtype_among(opcode: str, name: str, tile: NkiTensor, choices: Any) -> None:
    """Require a tile of one of a few dtypes."""
    require(tile.dtype in choices, Rule.DTYPE, opcode=opcode, operand=name, tile=tile, choices=choices)


def bitwise_operands(opcode: str, operators: list[Operator], **tiles: NkiTensor) -> bool:
    """Return whether operators work on bits, which all or none do; if so, require tiles of integers."""
    kinds = {operator.is_bitwise for operator in operators}
    require(len(kinds) <= 1, Rule.MIXED_OPERATORS, opcode=opcode, names=", ".join(map(repr, operators)))
    if kinds == {True}:
        for name, tile in tiles.items():
            dtype_among(opcode, name, tile, INTEGERS)
    return kinds == {True}


def apply(
    operator: Operator, left: Any, right: Any, *, reverse: bool = False, room: torch.Tensor | None = None
) -> torch.Tensor:
    """Compute an operator of one or two operands, in `room` if it can; `reverse` exchanges them."""
    if operator.arity == 1:
        return operator.into(room, left)
    if not isinstance(right, torch.Tensor):
        right = torch.tensor(right, dtype=left.dtype)
    return operator.into(room, right, left) if reverse else operator.into(room, left, right)


def column(value: Any, partitions: int) -> torch.Tensor:
    """Return a number, or what is a column already, as one element for each partition."""
    return value if isinstance(value, torch.Tensor) else torch.full((partitions, 1), float(value))


def accumulators(core: Core, engine: str, partitions: int) -> torch.Tensor:
    """Return the accumulators of an engine as a column."""
    held = core.registers.get(engine)
    if held is None or held.shape[0] < partitions:
        refuse(Rule.ACCUMULATORS, engine=engine, partitions=partitions)
    return held[:partitions]


def keep(core: Core, engine: str, held: torch.Tensor) -> None:
    """Set the accumulators of the first partitions of an engine; those of the others stay."""
    before = core.registers.get(engine)
    if before is not None and before.shape[0] > held.shape[0]:
        held = torch.cat([held, before[held.shape[0] :]])
    core.registers[engine] = held


def accumulate(
    core: Core,
    engine: str,
    operator: Operator,
    command: enum.Enum,
    values: torch.Tensor,
    initial: Any = 0.0,
    result: NkiTensor | None = None,
) -> None:
    """Change an engine's accumulators by a member of `ReduceCmd`, and write them to a tile if one is given.

    Args:
        initial: what load_reduce loads: a number or a column.
    """
    assert operator.identity is not None and operator.reduce is not None
    partitions = values.shape[0]
    if command.name != "idle":
        held = column(initial if command.name == "load_reduce" else operator.identity, partitions)
        if command.name == "reduce" and (before := core.registers.get(engine)) is not None:
            held = torch.cat([before[:partitions], held[before.shape[0] :]])
        if command.name != "reset":
            held = operator.function(held, operator.reduce(values, (1,)).reshape(-1, 1))
        keep(core, engine, held)
    if result is not None:
        result.write(accumulators(core, engine, partitions))


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
