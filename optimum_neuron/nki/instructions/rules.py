"""Rules that several instructions share: equal sizes, vectors of one element for each partition, kinds of dtypes."""

from __future__ import annotations

from typing import Any

import torch

from ..core import Core, refuse
from ..dtypes import as_float32
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor

INTEGERS = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32", "bool"})


def same_size(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles with as many partitions, and as many elements in each."""
    (first, head), *others = tiles.items()
    for name, tile in others:
        ours = (head.num_partitions, head.elements_per_partition)
        theirs = (tile.num_partitions, tile.elements_per_partition)
        if ours != theirs:
            refuse(
                f"{opcode}: {first} has {ours[0]} partitions of {ours[1]} elements, and {name} has {theirs[0]} of "
                f"{theirs[1]}.",
                hint=f"Give both the same size: {first} is {head.shape}, {name} is {tile.shape}.",
                rule="shape",
                operands=[first, name],
                shapes=[head.shape, tile.shape],
            )


def not_indirect(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles whose elements no indices in memory choose."""
    for name, tile in tiles.items():
        if tile.is_indirect():
            message = f"{opcode} {name} is scattered by offsets in memory, which is not simulated."
            refuse(message, hint="Write a tile, and scatter it with nisa.tensor_copy.", rule="indirect", operand=name)


def same_elements(opcode: str, dst: NkiTensor, src: NkiTensor) -> None:
    """Require as many elements in all."""
    if dst.size != src.size:
        message = f"{opcode}: src has {src.size} elements and dst has {dst.size}."
        hint = f"Give both as many: src is {src.shape}, dst is {dst.shape}."
        refuse(message, hint=hint, rule="shape", operands=["dst", "src"], shapes=[dst.shape, src.shape])


def same_dtype(opcode: str, **tiles: NkiTensor) -> None:
    """Require tiles of one dtype."""
    dtypes = {name: tile.dtype for name, tile in tiles.items()}
    if len(set(dtypes.values())) > 1:
        message = f"{opcode} converts no dtypes: {', '.join(f'{name} is {dtype}' for name, dtype in dtypes.items())}."
        refuse(message, hint="Give all the same dtype.", rule="dtype", dtypes=dtypes)


def limit(opcode: str, what: str, value: int, maximum: int) -> None:
    """Require a size of at most a maximum."""
    if value > maximum:
        message = f"{opcode} {what} {value} exceeds maximum {maximum}."
        hint = f"Split it into instructions of at most {maximum}."
        refuse(message, hint=hint, rule="tile_size", value=value, maximum=maximum)


def not_both_in_psum(opcode: str, **tiles: object) -> None:
    """Require that at most one of the tiles is in PSUM."""
    inside = [name for name, tile in tiles.items() if isinstance(tile, NkiTensor) and tile.buffer is Buffer.psum]
    if len(inside) > 1:
        message = f"{opcode}: {' and '.join(inside)} are both in psum, and one instruction reads one of them there."
        refuse(message, hint="Copy one to sbuf with nisa.tensor_copy.", rule="buffer", operands=inside)


def is_among(opcode: str, parameter: str, value: Any, choices: Any) -> None:
    """Require one of a few values."""
    if value not in choices:
        names = ", ".join(str(choice) for choice in choices)
        message = f"{opcode} {parameter} is {value}, which it does not take."
        refuse(message, hint=f"Use one of {names}.", rule="operand", operand=parameter)


def dtype_among(opcode: str, name: str, tile: NkiTensor, choices: Any) -> None:
    """Require a tile of one of a few dtypes."""
    if tile.dtype not in choices:
        hint = f"Use one of {', '.join(sorted(choices))}."
        refuse(f"{opcode} {name} is {tile.dtype}.", hint=hint, rule="dtype", operand=name, dtype=tile.dtype)


def scalar_operand(opcode: str, name: str, value: Any, data: NkiTensor, *, bitwise: bool = False) -> Any:
    """Return a number, or the elements of a vector [partitions, 1] as a column."""
    if not isinstance(value, NkiTensor):
        return int(value) if bitwise else as_float32(value)
    if (value.num_partitions, value.elements_per_partition) != (data.num_partitions, 1):
        message = f"{opcode} {name} has the shape {value.shape}: a vector has one element for each of the "
        message += f"{data.num_partitions} partitions of data."
        hint = f"Give a number or a tile of shape ({data.num_partitions}, 1)."
        refuse(message, hint=hint, rule="shape", operand=name, shape=value.shape)
    return value.integers().reshape(-1, 1) if bitwise else value.rows()


def bitwise_operands(opcode: str, operators: list[Operator], **tiles: NkiTensor) -> bool:
    """Return whether operators work on bits, which all or none do; if so, require tiles of integers."""
    kinds = {operator.is_bitwise for operator in operators}
    if len(kinds) > 1:
        message = f"{opcode} mixes operators on bits with arithmetic: {', '.join(map(repr, operators))}."
        refuse(message, hint="Use two instructions.", rule="operator")
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
    core: Core, engine: str, operator: Operator, command: str, values: torch.Tensor, initial: Any
) -> torch.Tensor:
    """Return an engine's accumulators after a reduce command: one column, which stays in the engine.

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
    return held
