"""Where elements are: the indices that are not zero, and the bounds of segments."""

from __future__ import annotations

import torch

from ..core import Core, Rule, require
from ..cost import ASSUMED
from ..tensor import NkiTensor
from . import rules
from .base import Engine, Instruction, instruction
from .search import GROUP


@instruction(ASSUMED)
class NonzeroWithCount(Instruction):
    """Write the indices of elements that are not zero, padding, and their number, for partitions 0, 16, 32 and so on.

    Other partitions are neither read nor written."""

    ENGINES = (Engine.gpsimd,)
    DTYPES = {"src": {"float32", "int32"}, "dst": {"int32"}}
    MIN_GENERATION = 3

    dst: NkiTensor
    src: NkiTensor
    index_offset: int = 0
    padding_val: int = -1

    def check(self, core: Core) -> None:
        wanted = (self.src.num_partitions, self.src.elements_per_partition + 1)
        rules.yields(self.OPCODE, "dst", self.dst, wanted, src=self.src)

    def run(self, core: Core) -> None:
        source = self.src[::GROUP]
        rows = source.read().reshape(source.num_partitions, -1) != 0
        places = torch.arange(rows.shape[1]).expand_as(rows)
        order = torch.where(rows, places, rows.shape[1]).sort(dim=1).values
        found = order < rows.shape[1]
        indices = torch.where(found, order + self.index_offset, self.padding_val)
        self.dst[::GROUP].write(torch.cat([indices, rows.sum(1, keepdim=True)], dim=1))


@instruction(ASSUMED)
class SequenceBounds(Instruction):
    """Write where the segment of each element starts and where it ends (exclusive); elements of segment 0 are padding.

    A padding element has the start n and the end -1, for n elements."""

    ENGINES = (Engine.gpsimd,)
    DTYPES = dict.fromkeys(("dst", "segment_ids"), {"float32", "int32"})

    dst: NkiTensor
    segment_ids: NkiTensor

    def check(self, core: Core) -> None:
        size = self.segment_ids.elements_per_partition
        fits = self.segment_ids.num_partitions == 1 and self.dst.shape == (1, 2, size)
        require(fits, Rule.SEQUENCE_BOUNDS, of=self, size=size)

    def run(self, core: Core) -> None:
        ids = self.segment_ids.rows()[0]
        size = len(ids)
        places = torch.arange(size)
        changes = ids[1:] != ids[:-1]
        first = torch.cat([torch.tensor([True]), changes])
        last = torch.cat([changes, torch.tensor([True])])
        starts = torch.where(first, places, 0).cummax(0).values
        ends = torch.where(last, places + 1, size).flip(0).cummin(0).values.flip(0)
        padding = ids == 0
        self.dst.write(torch.stack([starts.masked_fill(padding, size), ends.masked_fill(padding, -1)]))
