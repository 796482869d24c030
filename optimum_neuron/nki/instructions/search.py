"""Elements that are looked for: the largest of partitions and where they are, those that are not zero, segments.

`max8`, `nc_find_index8` and `nc_match_replace8` work on eight elements at once on the vector engine; `topk` selects any
number on GpSimd, from sixteen partitions that are one list: element i is in partition i % 16, column i // 16.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..core import Core, Rule, require
from ..cost import ASSUMED, ISA, TOPK
from ..tensor import NkiTensor
from . import rules
from .base import Engine, Instruction, instruction

WIDTH = 8
"""Elements that the vector engine searches for at once."""
MAX_SEARCHED = 16384
"""Elements of a partition that it searches."""
GROUP = 16
"""Partitions that one core of GpSimd reaches."""


def _check_search(opcode: str, data: NkiTensor, **eights: NkiTensor | None) -> None:
    elements = data.elements_per_partition
    fits = WIDTH <= elements <= MAX_SEARCHED
    require(fits, Rule.SEARCH_SIZE, opcode=opcode, maximum=MAX_SEARCHED, value=elements)
    for name, tile in eights.items():
        if tile is not None:
            rules.yields(opcode, name, tile, (data.num_partitions, WIDTH), data=data)


def _matches(rows: torch.Tensor, values: torch.Tensor, columns: Iterable[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where each value is in its row, -1 if it is not, and which elements matched.

    An element matches once, so a value that is given twice has two places. Columns of values choose in turn.
    """
    matched, places = torch.zeros_like(rows, dtype=torch.bool), torch.full(values.shape, -1)
    for column in columns:
        same = (rows == values[:, column, None]) & ~matched
        index, found = same.to(torch.uint8).argmax(1), same.any(1)
        matched |= torch.zeros_like(matched).scatter(1, index[:, None], found[:, None])
        places[:, column] = index.where(found, -1)
    return places, matched


def _write_indices(dst: NkiTensor, indices: torch.Tensor) -> None:
    """Write indices; all bits are set for one that is not there."""
    dst.write(indices.where(indices >= 0, 2 ** (8 * dst.storage.format.size_bytes) - 1))


@instruction(ISA)
class Max8(Instruction):
    """Write the eight largest elements of each partition, the largest first."""

    dst: NkiTensor
    src: NkiTensor

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.src, dst=self.dst)

    def run(self, core: Core) -> None:
        self.dst.write(self.src.rows().topk(WIDTH, dim=1).values)


@instruction(ISA)
class NcFindIndex8(Instruction):
    """Write the index of the first occurrence of eight values in each partition; all bits are set if there is none.

    A value that is given twice has its first two occurrences, as the public MoE reduction takes for granted."""

    DTYPES = {"dst": {"uint16", "uint32"}}

    dst: NkiTensor
    data: NkiTensor
    vals: NkiTensor

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.data, dst=self.dst, vals=self.vals)

    def run(self, core: Core) -> None:
        _write_indices(self.dst, _matches(self.data.rows(), self.vals.rows(), range(WIDTH))[0])


@instruction(ISA)
class NcMatchReplace8(Instruction):
    """Replace the first occurrence of eight values by a number; a value that is given twice replaces two elements.

    The last value chooses first, so the first occurrence belongs to the last of equal values, as published."""

    DTYPES = {"dst_idx": {"uint16", "uint32"}}

    dst: NkiTensor
    data: NkiTensor
    vals: NkiTensor
    imm: float
    dst_idx: NkiTensor | None = None

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.data, vals=self.vals, dst_idx=self.dst_idx)
        rules.same_size(self.OPCODE, data=self.data, dst=self.dst)

    def run(self, core: Core) -> None:
        rows = self.data.rows()
        indices, matched = _matches(rows, self.vals.rows(), reversed(range(WIDTH)))
        if self.dst_idx is not None:
            _write_indices(self.dst_idx, indices)
        self.dst.write(rows.masked_fill(matched, float(self.imm)))


@instruction(TOPK, "4 n + k")
class Topk(Instruction):
    """Write the largest of n elements and their indices for every sixteen partitions, the smallest of them first.

    Element i is in partition i % 16 and column i // 16, of src and of the results; there are as many results as columns
    of val_dst, and what they do not cover stays."""

    ENGINES = (Engine.gpsimd,)
    DTYPES = {"src": {"bfloat16"}, "val_dst": {"bfloat16"}, "idx_dst": {"uint32"}}

    val_dst: NkiTensor
    idx_dst: NkiTensor
    src: NkiTensor
    n: int

    @property
    def k(self) -> int:
        """Elements that are selected."""
        return self.val_dst.elements_per_partition

    def check(self, core: Core) -> None:
        rules.same_size(self.OPCODE, val_dst=self.val_dst, idx_dst=self.idx_dst)
        rules.multiple(self.OPCODE, "src", "partitions", self.src.num_partitions, GROUP)
        rules.same_partitions(self.OPCODE, src=self.src, val_dst=self.val_dst)
        room = GROUP * self.src.elements_per_partition
        maximum = min(room, 65535)
        fits = 8 <= self.n <= maximum and 1 <= self.k <= min(self.n, 32767)
        require(fits, Rule.TOPK_SIZE, of=self, room=room, maximum=maximum)

    def run(self, core: Core) -> None:
        groups = self.src.rows().reshape(-1, GROUP, self.src.elements_per_partition)
        lists = groups.transpose(1, 2).reshape(groups.shape[0], -1)[:, : self.n]
        order = lists.sort(dim=1, descending=True, stable=True).indices[:, : self.k].flip(1)
        places = torch.arange(self.k)
        rows = torch.arange(groups.shape[0])[:, None] * GROUP + places % GROUP
        columns = (places // GROUP).expand_as(rows)
        for dst, new in ((self.val_dst, lists.gather(1, order)), (self.idx_dst, order)):
            size = dst.extent
            chosen = torch.zeros(size, dtype=torch.bool)
            chosen[rows, columns] = True
            spread = torch.zeros(size, dtype=new.dtype)
            spread[rows, columns] = new
            dst.write_where(chosen.reshape(dst.shape), spread.reshape(dst.shape))

    def cycles(self, core: Core) -> float:
        """Return 4 * n + k, which the instruction's documentation publishes."""
        return 4 * self.n + self.k


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
