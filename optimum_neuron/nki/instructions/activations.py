"""Activation functions on the scalar engine, with scale, bias and a sum; exponentials on the vector engine."""

from __future__ import annotations

import enum
from typing import Any

import torch

from .. import cost
from ..core import Core, Rule, refuse, require
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
        if self.reduce_op is not None:
            rules.is_among(self.OPCODE, "reduce_op", self.reduce_op.name, ("add",))
        elif self.reduce_cmd not in (ReduceCmd.idle, ReduceCmd.reset):
            refuse(Rule.COMMAND_WITHOUT_OPERATOR, of=self)

    def run(self, core: Core) -> None:
        value = self.data.rows()
        scale = rules.scalar_operand(self.OPCODE, "scale", self.scale, self.data)
        bias = 0.0 if self.bias is None else rules.scalar_operand(self.OPCODE, "bias", self.bias, self.data)
        if isinstance(scale, torch.Tensor) or scale != 1.0:
            value = value * scale
        if isinstance(bias, torch.Tensor) or bias != 0.0:
            value = value + bias
        value = self.op.function(value)
        self.dst.write(value)
        if self.reduce_cmd is not ReduceCmd.idle:
            rules.accumulate(core, "scalar", self.reduce_op or OPERATORS["add"], self.reduce_cmd.name, value, 0.0)
        if self.reduce_res is not None:
            self.reduce_res.write(read_accumulators(core, "scalar", self.data.num_partitions))

    def cycles(self, core: Core) -> float:
        extra = core.timing.scalar_accumulator_cycles if self.reduce_res is not None else 0
        return cost.lane_cycles(core, self.data) + extra


ACTIVATIONS = [name for name, row in OPERATORS.items() if row.is_activation]


def require_activation(opcode: str, op: Operator) -> None:
    """Require an activation function."""
    require(op.is_activation, Rule.ACTIVATION, opcode=opcode, op=op, choices=ACTIVATIONS)


def read_accumulators(core: Core, engine: str, partitions: int) -> torch.Tensor:
    """Return the accumulators of an engine as a column."""
    held = core.registers.get(engine)
    if held is None or held.shape[0] < partitions:
        refuse(Rule.ACCUMULATORS, engine=engine, partitions=partitions)
    return held[:partitions]


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

    @property
    def reduction(self) -> Operator:
        """The operator of the accumulators."""
        return OPERATORS["add"] if self.reduce_op is None else self.reduce_op

    def check(self, core: Core) -> None:
        require_activation(self.OPCODE, self.op)
        pairs = (("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"))
        more = (("add", "bypass"), ("subtract", "bypass"), ("bypass", "bypass"))
        rules.is_among(self.OPCODE, "(op0, op1)", (self.op0.name, self.op1.name), pairs + more)
        if self.op.name != "prelu":
            rules.is_among(self.OPCODE, "relu_param", self.relu_param, (0.0,))
        names = ("add", "maximum", "minimum", "abs_max", "abs_min")
        rules.is_among(self.OPCODE, "reduce_op", self.reduction.name, names)

    def run(self, core: Core) -> None:
        value = self.data.rows()
        for op, imm, reverse, label in (
            (self.op0, self.imm0, self.reverse0, "imm0"),
            (self.op1, self.imm1, self.reverse1, "imm1"),
        ):
            if op.name != "bypass":
                operand = rules.scalar_operand(self.OPCODE, label, imm, self.data)
                value = rules.apply(op, value, operand, reverse=reverse)
        if self.op.name == "prelu":
            value = self.op.function(value, rules.scalar_operand(self.OPCODE, "relu_param", self.relu_param, self.data))
        else:
            value = self.op.function(value)
        self.dst.write(value)
        if self.reduce_cmd is not ReduceCmd.idle:
            rules.accumulate(core, "scalar", self.reduction, self.reduce_cmd.name, value, 0.0)
        if self.reduce_res is not None:
            self.reduce_res.write(read_accumulators(core, "scalar", self.data.num_partitions))


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
        highest = rules.scalar_operand(self.OPCODE, "max_value", self.max_value, self.src)
        value = torch.exp(self.src.rows() - highest)
        self.dst.write(value)
        initial = rules.scalar_operand(self.OPCODE, "reduce_init", self.reduce_init, self.src)
        rules.accumulate(core, "vector", OPERATORS["add"], self.reduce_cmd.name, value, initial, self.reduce_res)
