"""What streams may name: the instructions, their enumerations, and what kind each operand is."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any

from ..core import Rule, refuse, require
from ..instructions import ENUMS as ENUMS, INSTRUCTIONS, Instruction
from .document import Step


def instruction_class(step: Step) -> type[Instruction]:
    """Return the class of an instruction, whose operands have the right names."""
    kind = INSTRUCTIONS.get(step.opcode)
    names = None if kind is None else {field.name for field in dataclasses.fields(kind)} - {"name"}
    given = [name for name, _ in step.operands]
    if kind is None or names != {*given}:
        refuse(Rule.STREAM, problem=f"{step.opcode} of {', '.join(given)} is no instruction of this version.")
    return kind


def require_operands(instruction: Instruction) -> None:
    """Require operands of the kinds that the instruction takes."""
    for name, hint in _hints(instruction.OPCODE).items():
        value = getattr(instruction, name)
        require(_fits(value, hint), Rule.STREAM, problem=f"{instruction.OPCODE} {name} is {value!r}.")


@functools.cache
def _hints(opcode: str) -> dict[str, Any]:
    kind = INSTRUCTIONS[opcode]
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fits(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, one) for one in typing.get_args(hint))
    if origin is not None:
        return isinstance(value, origin)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int and isinstance(value, bool):
        return False
    return isinstance(value, hint)
