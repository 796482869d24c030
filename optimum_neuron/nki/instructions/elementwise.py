"""Element by element: tiles with tiles, tiles with numbers and vectors, scans along a partition."""

from __future__ import annotations

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ISA, SHORT
from ..dtypes import lowest_bits
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor
from . import rules
from .base import Engine, Instruction, Operand, instruction

_EXACT = frozenset({"int32", "uint32"})


@instruction(SHORT, "max(64, N), 2 N on v2 for two float32 tiles in SBUF", elementwise=True)
class TensorTensor(Instruction):
    """Compute `data1 op data2`, element by element."""

    ENGINES = (Engine.vector, Engine.gpsimd)

    dst: NkiTensor
    data1: NkiTensor
    data2: NkiTensor
    op: Operator
    engine: Engine = Engine.unknown

    @property
    def is_exact(self) -> bool:
        """Whether all tiles are 32-bit integers."""
        return {self.data1.dtype, self.data2.dtype, self.dst.dtype} <= _EXACT

    def resolved_engine(self, core: Core) -> Engine:
        """Return GpSimd for powers, and for 32-bit integers that it can reach; else the vector engine."""
        if self.op.name == "power":
            return Engine.gpsimd
        reachable = all(tile.buffer is Buffer.sbuf for tile in (self.data1, self.data2, self.dst))
        if self.engine is Engine.unknown and self.is_exact and reachable and not self.op.is_bitwise:
            return Engine.gpsimd
        return super().resolved_engine(core)

    def check(self, core: Core) -> None:
        rules.bitwise_operands(self.OPCODE, [self.op], data1=self.data1, data2=self.data2, dst=self.dst)
        require(self.op.arity == 2, Rule.UNARY_OPERATOR, of=self)

    def run(self, core: Core) -> None:
        exact = self.op.is_bitwise or (self.is_exact and self.resolved_engine(core) is Engine.gpsimd)
        left = self.data1.integers() if exact else self.data1.floats()
        right = self.data2.integers() if exact else self.data2.floats()
        if left.shape != right.shape:
            right = right.reshape(left.shape)
        value = self.op.into(None if exact else self.dst.room(left.shape), left, right)
        self.dst.write(lowest_bits(value, self.dst.storage.format) if self.op.is_bitwise else value)


@instruction(SHORT, "max(64, N); 16-bit: N / 4 or N / 2 from v3 on", elementwise=True)
class TensorScalar(Instruction):
    """Compute `(data op0 operand0) op1 operand1`; operands are numbers, or vectors [partitions, 1]."""

    ENGINES = (Engine.vector, Engine.scalar, Engine.gpsimd)
    COPIES = True

    dst: NkiTensor
    data: NkiTensor
    op0: Operator
    operand0: Operand
    reverse0: bool = False
    op1: Operator | None = None
    operand1: Operand = None
    reverse1: bool = False
    engine: Engine = Engine.unknown

    @property
    def operators(self) -> list[Operator]:
        """The operators that it was given."""
        return [self.op0] if self.op1 is None else [self.op0, self.op1]

    def check(self, core: Core) -> None:
        is_unary = self.op1 is not None and self.op1.arity == 1
        require((self.op1 is None) == (self.operand1 is None) or is_unary, Rule.SECOND_OPERATOR)
        bitwise = rules.bitwise_operands(self.OPCODE, self.operators, data=self.data, dst=self.dst)
        require(not bitwise or self.engine not in (Engine.scalar, Engine.gpsimd), Rule.BITS_ENGINE)

    def run(self, core: Core) -> None:
        bitwise = self.op0.is_bitwise
        value = self.data.integers() if bitwise else self.data.floats()
        value = value.reshape(self.data.num_partitions, -1)
        room = None if bitwise else self.dst.room(value.shape)
        for op, name, reverse in ((self.op0, "operand0", self.reverse0), (self.op1, "operand1", self.reverse1)):
            if op is None:
                break
            takes_two = op.arity == 2 and op.name != "bypass"
            right = self.vector(name, bitwise=bitwise) if takes_two else 0.0
            value = rules.apply(op, value, right, reverse=reverse, room=room)
            if bitwise:
                value = lowest_bits(value, self.dst.storage.format)
        self.dst.write(value)


@instruction(ISA, "max(64, 2 N), N for bfloat16 that is subtracted or multiplied", elementwise=True)
class ScalarTensorTensor(Instruction):
    """Compute `(data op0 operand0) op1 operand1`: operand0 is a number or a vector, operand1 a tile."""

    dst: NkiTensor
    data: NkiTensor
    op0: Operator
    operand0: Operand
    op1: Operator
    operand1: NkiTensor
    reverse0: bool = False
    reverse1: bool = False

    def check(self, core: Core) -> None:
        require_arithmetic(self.OPCODE, self.op0, self.op1)

    def run(self, core: Core) -> None:
        value, scalar, tile = self.data.rows(), self.vector("operand0"), self.operand1.rows()
        room = self.dst.room(value.shape)
        value = rules.apply(self.op0, value, scalar, reverse=self.reverse0, room=room)
        self.dst.write(rules.apply(self.op1, value, tile, reverse=self.reverse1, room=room))

    def cycles(self, core: Core) -> float:
        tiles = (self.data, self.operand1)
        is_short = all(tile.dtype == "bfloat16" and tile.elements_per_partition % 2 == 0 for tile in tiles)
        is_plain = {self.op0.name, self.op1.name} <= {"subtract", "multiply"}
        return cost.vector_cycles(core, tiles, self.dst, rate=1 if is_short and is_plain else 2)


def require_arithmetic(opcode: str, *operators: Operator) -> None:
    """Require operators that work on numbers."""
    for operator in operators:
        require(not operator.is_bitwise, Rule.ARITHMETIC, opcode=opcode, operator=operator)


@instruction(ISA, elementwise=True)
class TensorTensorScan(Instruction):
    """Scan along the elements of a partition: `(data0 op0 previous) op1 data1`, from `initial` on."""

    RATE = 2

    dst: NkiTensor
    data0: NkiTensor
    data1: NkiTensor
    initial: Operand
    op0: Operator
    op1: Operator
    reverse0: bool = False
    reverse1: bool = False

    def check(self, core: Core) -> None:
        require_arithmetic(self.OPCODE, self.op0, self.op1)

    def run(self, core: Core) -> None:
        left, right = self.data0.rows(), self.data1.rows()
        state = rules.column(self.vector("initial"), left.shape[0])
        if (self.op0.name, self.op1.name) == ("multiply", "add"):
            self.dst.write(_linear_scan(left, right, state))
            return
        columns = []
        for element in range(left.shape[1]):
            step = rules.apply(self.op0, left[:, element : element + 1], state, reverse=self.reverse0)
            state = rules.apply(self.op1, step, right[:, element : element + 1], reverse=self.reverse1)
            columns.append(state)
        self.dst.write(torch.cat(columns, dim=1))


def _linear_scan(factors: torch.Tensor, terms: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Compute state = factor * state + term along the rows, in order, in float32."""
    factors_T, result_T = factors.T.contiguous(), terms.T.contiguous().clone()
    previous = state.reshape(-1)
    for factor, row in zip(factors_T, result_T, strict=True):
        previous = row.addcmul_(factor, previous)
    return result_T.T


@instruction(ISA, elementwise=True)
class Reciprocal(Instruction):
    """Compute `1 / data`."""

    RATE = 8

    dst: NkiTensor
    data: NkiTensor

    def run(self, core: Core) -> None:
        self.dst.write(torch.reciprocal(self.data.floats()))
