"""Activation functions on the scalar engine, with scale, bias and a sum; exponentials on the vector engine."""

from __future__ import annotations

import enum
from typing import Any

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ASSUMED, ISA
from ..operators import OPERATORS, Operator
from ..tensor import NkiTensor
from . import rules
from .base import FUNCTIONS, Engine, Instruction, Operand, function, instruction


class ReduceCmd(enum.Enum):
    """What an instruction does with the accumulators of its engine, numbered as in `nki.isa`."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


@instruction(ISA, "max(64, N), 64 more with a reduction", elementwise=True)
class Activation(Instruction):
    """Compute `op(data * scale + bias)`; `reduce_cmd` adds the results to the engine's accumulators."""

    ENGINES = (Engine.scalar,)
    CHOICES = {"reduce_op": ("add",)}

    dst: NkiTensor
    op: Operator
    data: NkiTensor
    bias: Operand = None
    scale: Operand = 1.0
    reduce_op: Operator | None = None
    reduce_res: NkiTensor | None = None
    reduce_cmd: ReduceCmd = ReduceCmd.idle

    def check(self, core: Core) -> None:
        require_activation(self.OPCODE, self.op)
        is_vector = self.bias is None or isinstance(self.bias, NkiTensor)
        require(is_vector or core.generation > 2, Rule.ACTIVATION_BIAS, of=self)
        adds_nothing = self.reduce_cmd in (ReduceCmd.idle, ReduceCmd.reset)
        require(adds_nothing or self.reduce_op is not None, Rule.COMMAND_WITHOUT_OPERATOR, of=self)

    def run(self, core: Core) -> None:
        value, scale = self.data.rows(), self.vector("scale")
        bias = 0.0 if self.bias is None else self.vector("bias")
        room = self.dst.room(value.shape)
        if isinstance(scale, torch.Tensor) or scale != 1.0:
            value = torch.mul(value, scale, out=room)
        if isinstance(bias, torch.Tensor) or bias != 0.0:
            value = torch.add(value, bias, out=room)
        value = self.op.into(room, value)
        self.dst.write(value)
        rules.accumulate(core, "scalar", OPERATORS["add"], self.reduce_cmd, value, result=self.reduce_res)

    def cycles(self, core: Core) -> float:
        extra = core.timing.scalar_accumulator_cycles if self.reduce_res is not None else 0
        return cost.lane_cycles(core, self.data) + extra


ACTIVATIONS = [name for name, row in OPERATORS.items() if row.is_activation]


def require_activation(opcode: str, op: Operator) -> None:
    """Require an activation function."""
    require(op.is_activation, Rule.ACTIVATION, opcode=opcode, op=op, choices=ACTIVATIONS)


@function
def activation_reduce(
    dst: NkiTensor,
    op: object,
    data: NkiTensor,
    reduce_op: object,
    reduce_res: NkiTensor,
    bias: object = None,
    scale: object = 1.0,
    name: str | None = None,
) -> None:
    """Compute `activation`, and the sum of its results into reduce_res."""
    FUNCTIONS["activation"](dst, op, data, bias, scale, reduce_op, reduce_res, ReduceCmd.reset_reduce, name)


@instruction(ASSUMED, elementwise=True)
class Activate2(Instruction):
    """Compute `op((data op0 imm0) op1 imm1)`; needs NeuronCore-v4."""

    ENGINES = (Engine.scalar,)
    CHOICES = {"reduce_op": ("add", "maximum", "minimum", "abs_max", "abs_min")}
    MIN_GENERATION = 4

    dst: NkiTensor
    op: Operator
    data: NkiTensor
    imm0: Operand
    imm1: Operand
    op0: Operator
    op1: Operator
    relu_param: Any = 0.0
    reverse0: bool = False
    reverse1: bool = False
    reduce_op: Operator | None = None
    reduce_res: NkiTensor | None = None
    reduce_cmd: ReduceCmd = ReduceCmd.idle

    def check(self, core: Core) -> None:
        require_activation(self.OPCODE, self.op)
        pairs = (("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"))
        more = (("add", "bypass"), ("subtract", "bypass"), ("bypass", "bypass"))
        rules.is_among(self.OPCODE, "(op0, op1)", (self.op0.name, self.op1.name), pairs + more)
        if self.op.name != "prelu":
            rules.is_among(self.OPCODE, "relu_param", self.relu_param, (0.0,))

    def run(self, core: Core) -> None:
        value = self.data.rows()
        for op, name, reverse in ((self.op0, "imm0", self.reverse0), (self.op1, "imm1", self.reverse1)):
            if op.name != "bypass":
                value = rules.apply(op, value, self.vector(name), reverse=reverse)
        slope = [self.vector("relu_param")] if self.op.name == "prelu" else []
        value = self.op.function(value, *slope)
        self.dst.write(value)
        reduction = self.reduce_op or OPERATORS["add"]
        rules.accumulate(core, "scalar", reduction, self.reduce_cmd, value, result=self.reduce_res)


@instruction(ASSUMED, elementwise=True)
class Exponential(Instruction):
    """Compute `exp(src - max_value)`; needs NeuronCore-v4."""

    MIN_GENERATION = 4

    dst: NkiTensor
    src: NkiTensor
    max_value: Operand = 0.0
    reduce_res: NkiTensor | None = None
    reduce_cmd: ReduceCmd = ReduceCmd.idle
    reduce_init: Operand = 0.0

    def run(self, core: Core) -> None:
        value = torch.exp(self.src.rows() - self.vector("max_value"))
        self.dst.write(value)
        initial = self.vector("reduce_init")
        rules.accumulate(core, "vector", OPERATORS["add"], self.reduce_cmd, value, initial, self.reduce_res)
