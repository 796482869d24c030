"""Means and variances of partitions, in one pass on the vector engine."""

from __future__ import annotations

import torch

from .. import cost
from ..core import Core, require
from ..published_costs import ISA
from ..rulebook import Rule
from ..tensor import NkiTensor
from . import rules
from .base import Instruction, instruction

MAX_ELEMENTS = 512


@instruction(ISA, "max(64, N)")
class BnStats(Instruction):
    """Write count, mean and variance * count of the even and of the odd elements of each partition."""

    dst: NkiTensor
    data: NkiTensor

    def check(self, core: Core) -> None:
        rules.limit(self.OPCODE, "elements per partition", self.data.elements_per_partition, MAX_ELEMENTS)
        rules.yields(self.OPCODE, self.dst, self.data.num_partitions, 6, data=self.data)

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
        elements = self.data.elements_per_partition
        fits = elements % 3 == 0 and self.dst.extent == (self.data.num_partitions, 2)
        require(fits, Rule.BN_AGGR, of=self)

    def run(self, core: Core) -> None:
        count, mean, spread = self.data.rows().reshape(self.data.num_partitions, -1, 3).unbind(2)
        total = count.sum(1)
        center = (count * mean).sum(1) / total
        spread = spread.sum(1) + (count * (mean - center[:, None]) ** 2).sum(1)
        self.dst.write(torch.stack([center, spread / total], dim=1))
