"""Rules that several instructions share: equal sizes, vectors of one element for each partition, kinds of dtypes."""

from __future__ import annotations

from typing import Any

import torch

from ..core import Core, Rule, refuse, require
from ..dtypes import as_float32
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


def yields(opcode: str, dst: NkiTensor, partitions: int, elements: int, **sources: NkiTensor) -> None:
    """Require a result of so many partitions and elements in each."""
    if dst.extent != (partitions, elements):
        shapes = [f"{name} {tile.shape}" for name, tile in sources.items()]
        refuse(Rule.RESULT, opcode=opcode, dst=dst, shapes=shapes, wanted=(partitions, elements))


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


def scalar_operand(opcode: str, name: str, value: Any, data: NkiTensor, *, bitwise: bool = False) -> Any:
    """Return a number, or the elements of a vector [partitions, 1] as a column."""
    if not isinstance(value, NkiTensor):
        return int(value) if bitwise else as_float32(value)
    fits = value.extent == (data.num_partitions, 1)
    require(fits, Rule.VECTOR, opcode=opcode, operand=name, value=value, data=data)
    return value.integers().reshape(-1, 1) if bitwise else value.rows()


def bitwise_operands(opcode: str, operators: list[Operator], **tiles: NkiTensor) -> bool:
    """Return whether operators work on bits, which all or none do; if so, require tiles of integers."""
    kinds = {operator.is_bitwise for operator in operators}
    require(len(kinds) <= 1, Rule.MIXED_OPERATORS, opcode=opcode, names=", ".join(map(repr, operators)))
    if kinds == {True}:
        for name, tile in tiles.items():
            dtype_among(opcode, name, tile, INTEGERS)
    return kinds == {True}


def apply(operator: Operator, left: Any, right: Any, *, reverse: bool = False) -> torch.Tensor:
    """Compute an operator of one or two operands; `reverse` exchanges them."""
    if operator.arity == 1:
        return operator.function(left)
    if not isinstance(right, torch.Tensor):
        right = torch.tensor(right, dtype=left.dtype)
    return operator.function(right, left) if reverse else operator.function(left, right)


def accumulate(
    core: Core,
    engine: str,
    operator: Operator,
    command: str,
    values: torch.Tensor,
    initial: Any = 0.0,
    result: NkiTensor | None = None,
) -> None:
    """Change an engine's accumulators, one column, by a reduce command, and write them to a tile if one is given.

    Args:
        command: "idle", "reset", "reduce", "reset_reduce" or "load_reduce".
        initial: what load_reduce loads: a number or a column.
    """
    assert operator.identity is not None and operator.reduce is not None
    partitions = values.shape[0]
    fresh = torch.full((partitions, 1), operator.identity)
    state = core.registers.get(engine)
    held = fresh if state is None else state[:partitions]
    if command == "reset":
        held = fresh
    elif command in ("reduce", "reset_reduce", "load_reduce"):
        start = {"reduce": held, "reset_reduce": fresh}.get(command)
        if start is None:
            start = initial if isinstance(initial, torch.Tensor) else torch.full((partitions, 1), float(initial))
        held = operator.function(start, operator.reduce(values, (1,)).reshape(-1, 1))
    core.registers[engine] = held
    if result is not None:
        result.write(held)
