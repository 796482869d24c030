"""Elements moved by indices on the chip: within partitions, in groups of sixteen, and within quadrants of 32."""

from __future__ import annotations

import torch

from ..core import Core, Rule, require
from ..cost import ASSUMED, ISA
from ..dtypes import bits_of
from ..tensor import NkiTensor
from . import rules
from .base import Engine, Instruction, instruction
from .rules import QUADRANT
from .search import GROUP

KEEP = 255
"""Element of a shuffle's mask that leaves a partition as it is."""
CHUNK = 512
"""Elements that one instruction of a gather within partitions yields."""


def _require_inside(opcode: str, indices: torch.Tensor, size: int) -> None:
    index = int(indices.max())
    require(index < size, Rule.GATHER_INDEX, opcode=opcode, index=index, size=size, last=size - 1)


@instruction(ASSUMED, "N and 60 for each 512 of them")
class NcNGather(Instruction):
    """Take the elements of each partition that its indices name."""

    ENGINES = (Engine.gpsimd,)
    DTYPES = {"indices": {"uint32"}}
    SAME_DTYPE = ("data", "dst")

    dst: NkiTensor
    data: NkiTensor
    indices: NkiTensor

    def check(self, core: Core) -> None:
        rules.same_size(self.OPCODE, indices=self.indices, dst=self.dst)
        rules.same_partitions(self.OPCODE, data=self.data, indices=self.indices)

    def run(self, core: Core) -> None:
        index = self.indices.integers().reshape(self.indices.num_partitions, -1)
        _require_inside(self.OPCODE, index, self.data.elements_per_partition)
        data = self.data.read()
        self.dst.write(bits_of(data).reshape(self.data.num_partitions, -1).gather(1, index).view(data.dtype))

    def cycles(self, core: Core) -> float:
        """Return one cycle for each element, and one start for each 512 of them; no figure is published."""
        elements = self.dst.elements_per_partition
        return -(-elements // CHUNK) * core.timing.sram_access_cycles + elements


@instruction(ISA, "150 + indices * elements / C")
class LocalGather(Instruction):
    """Take elements of every sixteen partitions by the indices in the same sixteen, which count down the partitions."""

    ENGINES = (Engine.gpsimd,)
    DTYPES = {"index": {"uint16"}}
    SAME_DTYPE = ("src_buffer", "dst")
    CHOICES = {"num_elem_per_idx": (1, 2, 4, 8, 16, 32)}

    dst: NkiTensor
    src_buffer: NkiTensor
    index: NkiTensor
    num_elem_per_idx: int = 1
    num_valid_indices: int | None = None

    @property
    def num_indices(self) -> int:
        """Indices of each core of GpSimd."""
        return GROUP * self.index.elements_per_partition if self.num_valid_indices is None else self.num_valid_indices

    def check(self, core: Core) -> None:
        rules.limit(self.OPCODE, "number of indices per core", self.num_indices, 4096)
        rules.limit(self.OPCODE, "num_valid_indices", self.num_indices, GROUP * self.index.elements_per_partition)
        partitions = self.src_buffer.num_partitions
        rules.multiple(self.OPCODE, "src_buffer", "partitions", partitions, GROUP)
        rules.same_partitions(self.OPCODE, src_buffer=self.src_buffer, index=self.index)
        wanted = (partitions, self.num_indices * self.num_elem_per_idx)
        rules.yields(self.OPCODE, "dst", self.dst, wanted, src_buffer=self.src_buffer, index=self.index)

    def run(self, core: Core) -> None:
        groups = self.src_buffer.num_partitions // GROUP
        index = self.index.integers().reshape(groups, GROUP, -1).transpose(1, 2).reshape(groups, -1)
        starts = index[:, : self.num_indices]
        elements = (starts[:, :, None] + torch.arange(self.num_elem_per_idx)).reshape(groups, 1, -1)
        size = self.src_buffer.elements_per_partition
        _require_inside(self.OPCODE, elements, size)
        data = self.src_buffer.read()
        gathered = bits_of(data).reshape(groups, GROUP, size).gather(2, elements.expand(-1, GROUP, -1))
        self.dst.write(gathered.view(data.dtype))

    def cycles(self, core: Core) -> float:
        """Return 150 + indices * elements / C; C = (28 + 4 elements) / (4 elements) / min(4 / bytes, elements)."""
        elements, size = self.num_elem_per_idx, self.dst.storage.format.size_bytes
        factor = (28 + 4 * elements) / (4 * elements) / min(4 / size, elements)
        return core.timing.gpsimd_start_cycles + self.num_indices * elements / factor


@instruction(ISA)
class NcStreamShuffle(Instruction):
    """Copy partition `shuffle_mask[i]` of each 32 to partition i; 255 leaves the partition."""

    CONVERT = {"shuffle_mask": lambda mask: tuple(map(int, mask))}
    SAME_DTYPE = ("src", "dst")

    dst: NkiTensor
    src: NkiTensor
    shuffle_mask: tuple[int, ...]

    def check(self, core: Core) -> None:
        mask = list(self.shuffle_mask)
        fits = len(mask) == QUADRANT and all(0 <= place < QUADRANT or place == KEEP for place in mask)
        require(fits, Rule.SHUFFLE_MASK, mask=mask, operand="shuffle_mask")
        if self.src.elements_per_partition != self.dst.elements_per_partition:
            rules.same_size(self.OPCODE, src=self.src, dst=self.dst)

    def run(self, core: Core) -> None:
        data = self.src.read()
        values = bits_of(data).reshape(self.src.num_partitions, -1)
        written = [p for p in range(self.dst.num_partitions) if self.shuffle_mask[p % QUADRANT] != KEEP]
        sources = [p // QUADRANT * QUADRANT + self.shuffle_mask[p % QUADRANT] for p in written]
        last, size = max(sources, default=0), self.src.num_partitions
        require(last < size, Rule.SHUFFLE_PARTITION, index=last, size=size)
        rows = torch.zeros((self.dst.num_partitions, values.shape[1]), dtype=values.dtype)
        rows[written] = values[sources]
        chosen = torch.zeros_like(rows, dtype=torch.bool)
        chosen[written] = True
        self.dst.write_where(chosen.reshape(self.dst.shape), rows.view(data.dtype).reshape(self.dst.shape))
