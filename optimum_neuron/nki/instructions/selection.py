"""Patterns of indices, and choices between elements by them or by a predicate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..core import Core, Rule, require
from ..cost import ASSUMED, ISA
from ..dtypes import as_float32
from ..elements import offsets_of
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from . import rules
from .activations import ReduceCmd
from .base import Engine, Instruction, Operand, instruction

FP32_MIN = -3.4028235e38
"""What range_select puts where the range does not hold."""
_ORDERED = ("equal", "less", "less_equal", "greater", "greater_equal")


def affine_values(partitions: int, pattern: Sequence[Sequence[int]], offset: int, multiplier: int) -> torch.Tensor:
    """Return offset + partition * multiplier + the pattern's steps times its indices, one row for each partition."""
    rows = torch.arange(partitions).unsqueeze(-1) * multiplier
    return offset + rows + offsets_of(pattern).reshape(1, -1)


def _check_pattern(opcode: str, pattern: Sequence[Sequence[int]], tile: NkiTensor) -> None:
    count = math.prod(count for _, count in pattern)
    fits = count == tile.elements_per_partition and len(pattern) <= 4
    require(fits, Rule.INDEX_PATTERN, opcode=opcode, pattern=pattern, count=count, tile=tile)


@instruction(ISA)
class Iota(Instruction):
    """Write `offset + partition * channel_multiplier + sum(step * index)` for pairs [step, count]."""

    ENGINES = (Engine.gpsimd,)

    dst: NkiTensor
    pattern: Sequence[Sequence[int]]
    offset: int = 0
    channel_multiplier: int = 0

    def check(self, core: Core) -> None:
        _check_pattern(self.OPCODE, self.pattern, self.dst)

    def run(self, core: Core) -> None:
        self.dst.write(affine_values(self.dst.num_partitions, self.pattern, self.offset, self.channel_multiplier))


@instruction(ISA, elementwise=True)
class AffineSelect(Instruction):
    """Take elements where `iota`'s value compares with 0 by cmp_op, and a number elsewhere."""

    ENGINES = (Engine.gpsimd,)
    CHOICES = {"cmp_op": (*_ORDERED, "not_equal")}

    dst: NkiTensor
    pattern: Sequence[Sequence[int]]
    channel_multiplier: int
    on_true_tile: NkiTensor
    on_false_value: float
    cmp_op: Operator = OPERATORS["equal"]
    offset: int = 0

    def check(self, core: Core) -> None:
        _check_pattern(self.OPCODE, self.pattern, self.dst)

    def run(self, core: Core) -> None:
        values = affine_values(self.dst.num_partitions, self.pattern, self.offset, self.channel_multiplier)
        chosen = self.cmp_op.function(values, torch.zeros((), dtype=torch.int64)) != 0
        self.dst.write(self.on_true_tile.rows().masked_fill(~chosen, as_float32(self.on_false_value)))


@instruction(ISA)
class RangeSelect(Instruction):
    """Take elements whose indices compare with both bounds, float32's smallest number elsewhere, and their maximum."""

    DTYPES = dict.fromkeys(("bound0", "bound1"), {"float32"})
    CHOICES = {**dict.fromkeys(("comp_op0", "comp_op1"), _ORDERED), "reduce_op": ("maximum",)}
    MIN_GENERATION = 3

    dst: NkiTensor
    on_true_tile: NkiTensor
    comp_op0: Operator
    comp_op1: Operator
    bound0: NkiTensor
    bound1: NkiTensor
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_res: NkiTensor | None = None
    reduce_op: Operator = OPERATORS["maximum"]
    range_start: int = 0
    on_false_value: Any = ...

    def __post_init__(self) -> None:
        if self.on_false_value is ...:
            object.__setattr__(self, "on_false_value", FP32_MIN)

    def check(self, core: Core) -> None:
        rules.same_size(self.OPCODE, on_true_tile=self.on_true_tile, dst=self.dst)
        if not math.isclose(self.on_false_value, FP32_MIN, rel_tol=1e-6):
            rules.is_among(self.OPCODE, "on_false_value", self.on_false_value, (FP32_MIN,))

    def run(self, core: Core) -> None:
        values = self.on_true_tile.rows()
        index = torch.arange(values.shape[1], dtype=torch.float32) + self.range_start
        inside = torch.ones_like(values, dtype=torch.bool)
        for op, name in ((self.comp_op0, "bound0"), (self.comp_op1, "bound1")):
            inside &= op.function(index, self.vector(name)) != 0
        values = values.masked_fill(~inside, torch.finfo(torch.float32).min)
        self.dst.write(values)
        rules.accumulate(core, "vector", self.reduce_op, self.reduce_cmd, values, result=self.reduce_res)


@instruction(ASSUMED, "max(64, N), 2 N on v2 in float32", elementwise=True)
class SelectReduce(Instruction):
    """Take elements of on_true where the predicate is not 0 and of on_false elsewhere, and their maximum."""

    DTYPES = {"predicate": {"bool", "int8", "uint8", "int16", "uint16"}}
    CHOICES = {"reduce_op": ("maximum",)}

    dst: NkiTensor
    predicate: NkiTensor
    on_true: NkiTensor
    on_false: Operand
    reduce_res: NkiTensor | None = None
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_op: Operator = OPERATORS["maximum"]
    reverse_pred: bool = False

    def run(self, core: Core) -> None:
        chosen = (self.predicate.rows() != 0) ^ self.reverse_pred
        values = torch.where(chosen, self.on_true.rows(), self.vector("on_false"))
        self.dst.write(values)
        rules.accumulate(core, "vector", self.reduce_op, self.reduce_cmd, values, result=self.reduce_res)
