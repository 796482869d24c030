"""Reductions along the elements of partitions, and over partitions; means and variances in one pass."""

from __future__ import annotations

import math

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ASSUMED, ISA
from ..operators import Operator
from ..tensor import NkiTensor
from . import rules
from .activations import ReduceCmd
from .base import Engine, Instruction, Operand, instruction
from .elementwise import require_arithmetic

MAX_STATISTICS = 512
"""Elements of a partition that bn_stats takes."""


def require_reduction(opcode: str, op: Operator) -> None:
    """Require an operator that reduces."""
    require(op.reduce is not None, Rule.REDUCTION, opcode=opcode, op=op)


@instruction(ISA, "max(64, N), N / 2 for sums and maxima of bfloat16")
class TensorReduce(Instruction):
    """Reduce the last dimensions of a tile with an operator."""

    CONVERT = {"axis": lambda axis: (axis,) if isinstance(axis, int) else tuple(axis)}

    dst: NkiTensor
    op: Operator
    data: NkiTensor
    axis: tuple[int, ...]
    negate: bool = False
    keepdims: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The dimensions that it reduces, counted from the first."""
        return tuple(sorted(dim % self.data.ndim for dim in self.axis))

    def check(self, core: Core) -> None:
        require_reduction(self.OPCODE, self.op)
        last = tuple(range(self.data.ndim - len(self.axes), self.data.ndim))
        fits = self.axes and self.axes == last and 0 not in self.axes
        require(fits, Rule.REDUCED_AXES, of=self)
        kept = math.prod(size for dim, size in enumerate(self.data.shape) if dim not in self.axes)
        fits = self.dst.size == kept and self.dst.num_partitions == self.data.num_partitions
        require(fits, Rule.REDUCED_RESULT, of=self, kept=kept)
        bitwise = rules.bitwise_operands(self.OPCODE, [self.op], data=self.data, dst=self.dst)
        rules.is_among(self.OPCODE, "negate", self.negate, (False,) if bitwise else (False, True))

    def run(self, core: Core) -> None:
        assert self.op.reduce is not None
        data = self.data.integers() if self.op.is_bitwise else self.data.floats()
        result = self.op.reduce(data, self.axes)
        self.dst.write((-result if self.negate else result).reshape(self.dst.shape))

    def cycles(self, core: Core) -> float:
        is_short = self.data.dtype == self.dst.dtype == "bfloat16" and self.op.name in ("add", "maximum")
        return cost.vector_cycles(core, [self.data], self.dst, rate=0.5 if is_short else 1)


@instruction(ASSUMED)
class TensorPartitionReduce(Instruction):
    """Reduce over partitions, into a tile of one partition."""

    ENGINES = (Engine.gpsimd,)
    CHOICES = {"op": ("add", "maximum", "bitwise_or", "bitwise_and")}

    dst: NkiTensor
    op: Operator
    data: NkiTensor

    def check(self, core: Core) -> None:
        rules.yields(self.OPCODE, "dst", self.dst, (1, self.data.elements_per_partition), data=self.data)
        rules.bitwise_operands(self.OPCODE, [self.op], data=self.data, dst=self.dst)

    def run(self, core: Core) -> None:
        assert self.op.reduce is not None
        data = self.data.integers() if self.op.is_bitwise else self.data.floats()
        self.dst.write(self.op.reduce(data.reshape(self.data.num_partitions, -1), (0,)))


@instruction(ISA, "max(64, N) + 64", elementwise=True)
class TensorScalarReduce(Instruction):
    """Compute `data op0 operand0`, and reduce it along the partition into reduce_res."""

    CHOICES = {"reduce_op": ("add", "multiply", "maximum", "minimum")}

    dst: NkiTensor
    data: NkiTensor
    op0: Operator
    operand0: Operand
    reduce_op: Operator
    reduce_res: NkiTensor | None = None
    reverse0: bool = False
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce
    reduce_init: Operand = None
    reduce_res_negate: bool = False

    def check(self, core: Core) -> None:
        require_arithmetic(self.OPCODE, self.op0)
        loads = self.reduce_cmd is ReduceCmd.load_reduce
        require((self.reduce_init is not None) == loads, Rule.REDUCE_INIT)

    def run(self, core: Core) -> None:
        operand = self.vector("operand0") if self.op0.arity == 2 else 0.0
        value = rules.apply(self.op0, self.data.rows(), operand, reverse=self.reverse0)
        self.dst.write(value)
        initial = 0.0 if self.reduce_init is None else self.vector("reduce_init")
        rules.accumulate(core, "vector", self.reduce_op, self.reduce_cmd, value, initial, self.reduce_res)
        if self.reduce_res is not None and self.reduce_res_negate:
            self.reduce_res.write(-rules.accumulators(core, "vector", self.data.num_partitions))

    def cycles(self, core: Core) -> float:
        extra = core.timing.scalar_accumulator_cycles
        return cost.vector_cycles(core, [self.data], self.dst, is_copy_or_scalar=True) + extra


@instruction(ASSUMED, elementwise=True)
class TensorScalarCumulative(Instruction):
    """Compute the running `op1` of `src op0 imm0` along the partition."""

    CHOICES = {
        "op1": ("add", "subtract", "multiply", "maximum", "minimum"),
        "reduce_cmd": (ReduceCmd.reset_reduce, ReduceCmd.reduce, ReduceCmd.load_reduce),
    }

    dst: NkiTensor
    src: NkiTensor
    op0: Operator
    op1: Operator
    imm0: Operand
    imm1: Operand = None
    reduce_cmd: ReduceCmd = ReduceCmd.reset_reduce

    def check(self, core: Core) -> None:
        require_arithmetic(self.OPCODE, self.op0)

    def run(self, core: Core) -> None:
        value = rules.apply(self.op0, self.src.rows(), self.vector("imm0"))
        begin, partitions = self.op1.identity, value.shape[0]
        if self.reduce_cmd is ReduceCmd.reduce:
            begin = rules.accumulators(core, "vector", partitions)
        elif self.reduce_cmd is ReduceCmd.load_reduce:
            begin = self.vector("imm1")
        state = rules.column(begin, partitions)
        columns = []
        for element in range(value.shape[1]):
            state = self.op1.function(value[:, element : element + 1], state)
            columns.append(state)
        rules.keep(core, "vector", state)
        self.dst.write(torch.cat(columns, dim=1))


@instruction(ISA, "max(64, N)")
class BnStats(Instruction):
    """Write count, mean and variance * count of the even and of the odd elements of each partition."""

    dst: NkiTensor
    data: NkiTensor

    def check(self, core: Core) -> None:
        rules.limit(self.OPCODE, "elements per partition", self.data.elements_per_partition, MAX_STATISTICS)
        rules.yields(self.OPCODE, "dst", self.dst, (self.data.num_partitions, 6), data=self.data)

    def run(self, core: Core) -> None:
        rows = self.data.rows()
        parts = []
        for values in (rows[:, 0::2], rows[:, 1::2]):
            count = values.shape[1]
            mean = values.mean(1) if count else torch.zeros(rows.shape[0])
            spread = ((values - mean[:, None]) ** 2).sum(1)
            parts += [torch.full_like(mean, count), mean, spread]
        self.dst.write(torch.stack(parts, dim=1))

    def cycles(self, core: Core) -> float:
        return cost.vector_cycles(core, [self.data], self.data)


@instruction(ISA)
class BnAggr(Instruction):
    """Write mean and variance of the statistics of one or more bn_stats."""

    RATE = 13 / 3

    dst: NkiTensor
    data: NkiTensor

    def check(self, core: Core) -> None:
        rules.multiple(self.OPCODE, "data", "elements in a partition", self.data.elements_per_partition, 3)
        rules.yields(self.OPCODE, "dst", self.dst, (self.data.num_partitions, 2), data=self.data)

    def run(self, core: Core) -> None:
        count, mean, spread = self.data.rows().reshape(self.data.num_partitions, -1, 3).unbind(2)
        total = count.sum(1)
        center = (count * mean).sum(1) / total
        spread = spread.sum(1) + (count * (mean - center[:, None]) ** 2).sum(1)
        self.dst.write(torch.stack([center, spread / total], dim=1))
