"""Rules that several instructions share: equal sizes, vectors of one element for each partition, kinds of dtypes."""

from __future__ import annotations

import enum
from typing import Any

import torch

from ..core import Core, Rule, refuse, require
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor

INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"})


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


def same_dtype(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles of one dtype."""
    dtypes = {name: tile.dtype for name, tile in tiles.items()}
    require(len(set(dtypes.values())) <= 1, Rule.SAME_DTYPE, opcode=opcode, dtypes=dtypes)


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
