"""Registers of the engines' sequencers: one integer each, for bounds of loops and for addresses."""

from __future__ import annotations

import re
from typing import Any

import torch

from ..core import Core, Rule, current, kernel_line, refuse, require, running, source_of
from ..cost import ASSUMED
from ..memory import Buffer
from ..tensor import NkiTensor
from .base import Engine, Instruction, function, instruction

_LOOP = re.compile(r"(?<![\w.])(?<!dynamic_)range\(")


def _strict_source(other: str = "") -> str:
    """Return the text of the kernel's line if the hardware's rules hold, or `other`."""
    if not running() or not current().platform_rules:
        return other
    return source_of(kernel_line())


class VirtualRegister:
    """A register: an integer that a kernel changes; it can be a slice's start, a loop's bound, or a condition.

    Args:
        state: the integer; None if nothing wrote it.
        frozen: whether instructions do not write it, as the number of a loop.
    """

    def __init__(self, state: int | None = None, frozen: bool = False) -> None:
        self.value, self.frozen = state, frozen

    def __index__(self) -> int:
        if _LOOP.search(_strict_source()):
            refuse(Rule.REGISTER_LOOP)
        if self.value is None:
            refuse(Rule.UNWRITTEN_REGISTER)
        return self.value

    def __int__(self) -> int:
        return self.__index__()

    def __bool__(self) -> bool:
        if not _strict_source("while ").startswith("while "):
            refuse(Rule.REGISTER_BRANCH)
        return self.__index__() != 0

    def __add__(self, other: Any) -> VirtualRegister:
        return VirtualRegister(int(self) + int(other))

    def __sub__(self, other: Any) -> VirtualRegister:
        return VirtualRegister(int(self) - int(other))

    def __mul__(self, other: Any) -> VirtualRegister:
        return VirtualRegister(int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> VirtualRegister:
        return VirtualRegister(int(other) - int(self))

    def __repr__(self) -> str:
        return f"VirtualRegister({self.value})"


def _require_register(opcode: str, parameter: str, value: object) -> VirtualRegister:
    if not isinstance(value, VirtualRegister):
        refuse(Rule.REGISTER, instruction=opcode, operand=parameter, value=value)
    return value


def _require_written(opcode: str, dst: object) -> VirtualRegister:
    register = _require_register(opcode, "dst", dst)
    require(not register.frozen, Rule.LOOP_REGISTER, instruction=opcode, register=register, operand="dst")
    return register


@function
def register_alloc(x: int | None = None) -> VirtualRegister:
    """Return a new register, which holds a number if one is given."""
    return VirtualRegister(None if x is None else int(x))


@function
def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """Set a register to a number or to another register."""
    _require_written("register_move", dst).value = int(src)


class _Access(Instruction):
    """What reading and writing one element have in common."""

    MEMORIES = dict.fromkeys(("src", "dst"), frozenset(Buffer) - {Buffer.psum})
    DTYPES = dict.fromkeys(("src", "dst"), {"int8", "uint8", "int16", "uint16", "int32", "uint32", "float32"})
    ENGINES = (Engine.sync,)

    def check(self, core: Core) -> None:
        require(self.tile.size == 1, Rule.ONE_ELEMENT, of=self.tile)

    def cycles(self, core: Core) -> float:
        """Return the start of one access; no figure is published."""
        return core.timing.sram_access_cycles


@instruction(ASSUMED, "60", is_named=False)
class RegisterLoad(_Access):
    """Read one element of HBM or SBUF to a register."""

    dst: VirtualRegister
    src: NkiTensor

    def check(self, core: Core) -> None:
        super().check(core)
        _require_written(self.OPCODE, self.dst)
        require(core.tape is None, Rule.REGISTER_IN_STREAM)

    def run(self, core: Core) -> None:
        self.dst.value = self.src.scalar()


@instruction(ASSUMED, "60", is_named=False)
class RegisterStore(_Access):
    """Write a register to one element of HBM or SBUF."""

    dst: NkiTensor
    src: VirtualRegister

    def check(self, core: Core) -> None:
        super().check(core)
        _require_register(self.OPCODE, "src", self.src)

    def run(self, core: Core) -> None:
        self.dst.write(torch.tensor(int(self.src)).reshape(self.dst.shape))
