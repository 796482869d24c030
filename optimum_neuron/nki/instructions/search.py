"""The largest elements of partitions, where they are, and their replacement.

`max8`, `nc_find_index8` and `nc_match_replace8` work on eight elements at once on the vector engine; `topk` selects any
number on GpSimd, from sixteen partitions that are one list: element i is in partition i % 16, column i // 16.
"""

from __future__ import annotations

import torch

from .. import cost
from ..core import Core, refuse
from ..published_costs import ISA, TOPK
from ..tensor import NkiTensor
from . import rules
from .base import SBUF, Engine, Instruction, instruction

WIDTH = 8
"""Elements that the vector engine searches for at once."""
MAX_SEARCHED = 16384
"""Elements of a partition that it searches."""
GROUP = 16
"""Partitions that one core of GpSimd reaches."""


def _check_search(opcode: str, data: NkiTensor, **eights: NkiTensor | None) -> None:
    elements = data.elements_per_partition
    if not WIDTH <= elements <= MAX_SEARCHED:
        message = f"{opcode} searches {WIDTH} to {MAX_SEARCHED} elements of a partition, and got {elements}."
        hint = "Pad the tile, or split it and search the results."
        refuse(message, hint=hint, rule="tile_size", value=elements, maximum=MAX_SEARCHED)
    for name, tile in eights.items():
        if tile is not None and (tile.num_partitions, tile.elements_per_partition) != (data.num_partitions, WIDTH):
            message = f"{opcode} {name} has the shape {tile.shape}, and needs {WIDTH} elements for each of "
            message += f"{data.num_partitions} partitions."
            hint = f"Give it the shape ({data.num_partitions}, {WIDTH})."
            refuse(message, hint=hint, rule="shape", operand=name, shapes=[data.shape, tile.shape])


def _first_matches(rows: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first index of one value in each row, and whether it is there."""
    same = rows == wanted[:, None]
    return same.to(torch.uint8).argmax(1), same.any(1)


def _absent_index(dst: NkiTensor) -> int:
    """Return the index that stands for a value that is not there: all bits set."""
    return 2 ** (8 * dst.storage.format.size_bytes) - 1


@instruction("max(64, N)", ISA)
class Max8(Instruction):
    """Write the eight largest elements of each partition, the largest first."""

    OPCODE = "max8"
    READS = ("src",)
    ENGINES = (Engine.vector,)

    dst: NkiTensor
    src: NkiTensor

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.src, dst=self.dst)

    def run(self, core: Core) -> None:
        self.dst.write(self.src.rows().topk(WIDTH, dim=1).values)

    def cycles(self, core: Core) -> float:
        return cost.vector_cycles(core, [self.src], self.dst)


@instruction("max(64, N)", ISA)
class NcFindIndex8(Instruction):
    """Write the index of the first occurrence of eight values in each partition; all bits are set if there is none."""

    OPCODE = "nc_find_index8"
    READS = ("data", "vals")
    ENGINES = (Engine.vector,)

    dst: NkiTensor
    data: NkiTensor
    vals: NkiTensor

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.data, dst=self.dst, vals=self.vals)
        rules.dtype_among(self.OPCODE, "dst", self.dst, {"uint16", "uint32"})

    def run(self, core: Core) -> None:
        rows = self.data.rows()
        columns = []
        for wanted in self.vals.rows().unbind(1):
            index, found = _first_matches(rows, wanted)
            columns.append(index.where(found, torch.tensor(_absent_index(self.dst))))
        self.dst.write(torch.stack(columns, dim=1))

    def cycles(self, core: Core) -> float:
        return cost.vector_cycles(core, [self.data], self.dst)


@instruction("max(64, N)", ISA)
class NcMatchReplace8(Instruction):
    """Replace the first occurrence of eight values by a number; a value that is given twice replaces two elements."""

    OPCODE = "nc_match_replace8"
    READS = ("data", "vals")
    WRITES = ("dst", "dst_idx")
    ENGINES = (Engine.vector,)

    dst: NkiTensor
    data: NkiTensor
    vals: NkiTensor
    imm: float
    dst_idx: NkiTensor | None = None

    def check(self, core: Core) -> None:
        _check_search(self.OPCODE, self.data, vals=self.vals, dst_idx=self.dst_idx)
        rules.same_size(self.OPCODE, data=self.data, dst=self.dst)
        if self.dst_idx is not None:
            rules.dtype_among(self.OPCODE, "dst_idx", self.dst_idx, {"uint16", "uint32"})

    def run(self, core: Core) -> None:
        rows, replaced = self.data.rows(), self.data.rows().clone()
        open_rows = torch.ones_like(rows, dtype=torch.bool)
        columns = []
        for wanted in self.vals.rows().unbind(1):
            index, found = _first_matches(rows.masked_fill(~open_rows, torch.nan), wanted)
            chosen = torch.zeros_like(open_rows).scatter(1, index[:, None], found[:, None])
            open_rows &= ~chosen
            replaced.masked_fill_(chosen, float(self.imm))
            columns.append(index.where(found, torch.tensor(-1)))
        if self.dst_idx is not None:
            indices = torch.stack(columns, dim=1)
            self.dst_idx.write(indices.where(indices >= 0, torch.tensor(_absent_index(self.dst_idx))))
        self.dst.write(replaced)

    def cycles(self, core: Core) -> float:
        return cost.vector_cycles(core, [self.data], self.dst)


@instruction("4 n + k", TOPK)
class Topk(Instruction):
    """Write the largest of n elements and their indices for every sixteen partitions, the smallest of them first.

    Element i is in partition i % 16 and column i // 16, of src and of the results; there are as many results as columns
    of val_dst, and what they do not cover stays."""

    OPCODE = "topk"
    READS = ("src",)
    WRITES = ("val_dst", "idx_dst")
    MEMORIES = {"val_dst": SBUF, "idx_dst": SBUF, "src": SBUF}
    ENGINES = (Engine.gpsimd,)

    val_dst: NkiTensor
    idx_dst: NkiTensor
    src: NkiTensor
    n: int

    @property
    def k(self) -> int:
        """Elements that are selected."""
        return self.val_dst.elements_per_partition

    def check(self, core: Core) -> None:
        for name, dtype in (("src", "bfloat16"), ("val_dst", "bfloat16"), ("idx_dst", "uint32")):
            rules.dtype_among(self.OPCODE, name, getattr(self, name), {dtype})
        rules.same_size(self.OPCODE, val_dst=self.val_dst, idx_dst=self.idx_dst)
        partitions = self.src.num_partitions
        if partitions % GROUP or partitions != self.val_dst.num_partitions:
            message = f"topk takes groups of {GROUP} partitions, and src has {partitions}, val_dst "
            message += f"{self.val_dst.num_partitions}."
            hint = f"Give both the same multiple of {GROUP}."
            refuse(message, hint=hint, rule="shape", shapes=[self.src.shape, self.val_dst.shape])
        room = GROUP * self.src.elements_per_partition
        if not 8 <= self.n <= min(room, 65535) or not 1 <= self.k <= min(self.n, 32767):
            message = f"topk selects {self.k} of n={self.n} elements, and a group of src has room for {room}."
            hint = "Use an n from 8 to 65535 that fits, and at most n and 32767 results."
            refuse(message, hint=hint, rule="tile_size", value=self.n, maximum=min(room, 65535))

    def run(self, core: Core) -> None:
        groups = self.src.rows().reshape(-1, GROUP, self.src.elements_per_partition)
        lists = groups.transpose(1, 2).reshape(groups.shape[0], -1)[:, : self.n]
        order = lists.sort(dim=1, descending=True, stable=True).indices[:, : self.k].flip(1)
        places = torch.arange(self.k)
        rows = torch.arange(groups.shape[0])[:, None] * GROUP + places % GROUP
        columns = (places // GROUP).expand_as(rows)
        for dst, new in ((self.val_dst, lists.gather(1, order)), (self.idx_dst, order)):
            size = (dst.num_partitions, dst.elements_per_partition)
            chosen = torch.zeros(size, dtype=torch.bool)
            chosen[rows, columns] = True
            spread = torch.zeros(size, dtype=new.dtype)
            spread[rows, columns] = new
            dst.write_where(chosen.reshape(dst.shape), spread.reshape(dst.shape))

    def cycles(self, core: Core) -> float:
        """Return 4 * n + k, which the instruction's documentation publishes."""
        return 4 * self.n + self.k
