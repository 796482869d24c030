"""What streams may name: the instructions, their enumerations, and what kind each operand is."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from .. import instructions
from ..core import refuse
from ..instructions import Instruction
from .document import Step


def _modules() -> Iterator[types.ModuleType]:
    for module in pkgutil.iter_modules(instructions.__path__):
        yield importlib.import_module(f"{instructions.__name__}.{module.name}")


def _below(kind: type[Instruction]) -> Iterator[type[Instruction]]:
    for one in kind.__subclasses__():
        yield from (one, *_below(one))


ENUMS: Mapping[str, type[enum.Enum]] = {
    name: value
    for module in _modules()
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, enum.Enum) and value is not enum.Enum
}
"""Enumerations of operands by class name."""

INSTRUCTIONS: Mapping[str, type[Instruction]] = {one.OPCODE: one for one in _below(Instruction) if one.OPCODE}
"""Instructions by name."""


def instruction_class(step: Step) -> type[Instruction]:
    """Return the class of an instruction, whose operands have the right names."""
    kind = INSTRUCTIONS.get(step.opcode)
    names = None if kind is None else {field.name for field in dataclasses.fields(kind)} - {"name"}
    if kind is None or names != {name for name, _ in step.operands}:
        message = f"There is no instruction {step.opcode}"
        if names is not None:
            message = f"{step.opcode} has the operands {', '.join(sorted(names))}, and others are given"
        refuse(f"{message}.", hint="Trace the kernel again with this version.", rule="stream", instruction=step.opcode)
    return kind


def operand_problem(instruction: Instruction) -> str | None:
    """Return what is wrong with the kinds of an instruction's operands; None if nothing is."""
    for name, hint in _hints(instruction.OPCODE).items():
        value = getattr(instruction, name)
        if not _fits(value, hint):
            return f"{instruction.OPCODE} {name} is {value!r}."
    return None


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
