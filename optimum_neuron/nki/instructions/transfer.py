"""Copies on the chip, constants, and transfers by DMA."""

from __future__ import annotations

import enum
from typing import Any

import torch

from .. import cost
from ..core import Core, Rule, require
from ..cost import ASSUMED, DMA, ISA, SHORT, V3
from ..dtypes import PACKED, as_float32
from ..memory import Buffer
from ..operators import as_operator
from ..tensor import NkiTensor
from . import rules
from .base import SBUF, Engine, Instruction, Operand, instruction

ANYWHERE = frozenset(Buffer)


class DgeMode(enum.Enum):
    """Who generates the descriptors of a DMA, numbered as in `nki.isa`."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class OobMode(enum.Enum):
    """What an index outside of a tensor does."""

    error = 0
    skip = 1


@instruction(SHORT, "max(64, N); 16-bit: N / 4 or N / 2 from v3 on", elementwise=True)
class TensorCopy(Instruction):
    """Copy a tile on the chip: bits where both dtypes are equal, through float32 otherwise."""

    ENGINES = (Engine.vector, Engine.scalar, Engine.gpsimd)
    COPIES = True

    dst: NkiTensor
    src: NkiTensor
    engine: Engine = Engine.unknown

    def check(self, core: Core) -> None:
        require(self.engine is not Engine.scalar or core.generation != 2, Rule.COPY_ENGINE)

    def run(self, core: Core) -> None:
        self.dst.write(self.src.read() if self.src.dtype == self.dst.dtype else self.src.floats())


@instruction(ISA, "max(64, N), N / 2 for 16-bit zeros")
class Memset(Instruction):
    """Fill a tile with a constant."""

    ENGINES = (Engine.vector, Engine.gpsimd)

    dst: NkiTensor
    value: Any
    engine: Engine = Engine.unknown

    def check(self, core: Core) -> None:
        if self.dst.dtype in PACKED:
            rules.is_among(self.OPCODE, "value", self.value, (0,))

    def run(self, core: Core) -> None:
        if self.dst.storage.format.is_float:
            self.dst.write(torch.full(self.dst.shape, as_float32(self.value)))
        else:
            self.dst.write(torch.full(self.dst.shape, round(self.value), dtype=torch.int64))

    def cycles(self, core: Core) -> float:
        if self.resolved_engine(core) is not Engine.vector:
            return super().cycles(core)
        is_short = self.value == 0 and self.dst.storage.format.size_bytes == 2
        return cost.vector_cycles(core, [], self.dst, rate=0.5 if is_short else 1)


@instruction(DMA, "1300 ns, then each run at the peak rate and a fixed part")
class DmaCopy(Instruction):
    """Copy between HBM and the chip, through float32 if the dtypes differ."""

    MEMORIES = {"dst": ANYWHERE, "src": ANYWHERE}
    ENGINES = (Engine.dma,)
    RENAMED = {"trigger": "engine"}

    dst: NkiTensor
    src: NkiTensor
    priority: int | None = None
    oob_mode: OobMode = OobMode.error
    dge_mode: DgeMode = DgeMode.unknown
    trigger: Engine = Engine.unknown

    def check(self, core: Core) -> None:
        rules.same_elements(self.OPCODE, self.dst, self.src)
        check_descriptors(self.OPCODE, core, self.priority, self.dge_mode)

    def run(self, core: Core) -> None:
        skip = self.oob_mode is OobMode.skip
        target = self.dst.with_skip(skip)
        source = self.src.with_skip(skip)
        target.write_read(source, source.read() if source.dtype == target.dtype else source.floats())

    def cycles(self, core: Core) -> float:
        return max(cost.dma_ns(core, self.src), cost.dma_ns(core, self.dst))


def check_descriptors(opcode: str, core: Core, priority: int | None, dge_mode: DgeMode) -> None:
    """Check the options of a DMA against the generation."""
    has_level = priority is None or (core.generation >= 4 and 0 <= priority <= 3)
    require(has_level, Rule.DMA_PRIORITY, opcode=opcode, priority=priority)
    require(dge_mode is not DgeMode.hwdge or core.generation >= 3, Rule.DMA_HARDWARE_DESCRIPTORS, opcode=opcode)


AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
"""How a DMA transposes tensors of so many dimensions."""


@instruction(V3, "as dma_copy, at 90 % of its rate from HBM and 50 % from SBUF")
class DmaTranspose(Instruction):
    """Transpose 2, 3 or 4 dimensions while copying to SBUF."""

    CONVERT = {"axes": tuple}
    MEMORIES = {"dst": SBUF, "src": ANYWHERE - {Buffer.psum}}
    ENGINES = (Engine.dma,)
    SAME_DTYPE = ("src", "dst")

    dst: NkiTensor
    src: NkiTensor
    axes: tuple[int, ...] | None = None
    priority: int | None = None
    dge_mode: DgeMode = DgeMode.unknown
    oob_mode: OobMode = OobMode.error

    @property
    def order(self) -> tuple[int, ...]:
        """Where dimensions of the result come from."""
        return AXES.get(self.src.ndim, ()) if self.axes is None else self.axes

    def check(self, core: Core) -> None:
        rules.is_among(self.OPCODE, "axes", self.order, tuple(AXES.values()))
        rules.same_elements(self.OPCODE, self.dst, self.src)
        check_descriptors(self.OPCODE, core, self.priority, self.dge_mode)

    def run(self, core: Core) -> None:
        source = self.src.with_skip(self.oob_mode is OobMode.skip)
        self.dst.write_read(source, source.read(), self.order)

    def cycles(self, core: Core) -> float:
        rates = core.timing.dma_transpose_rate
        rate = rates.get("sbuf_to_sbuf" if self.src.buffer is Buffer.sbuf else "hbm_to_sbuf", 1.0)
        return cost.dma_ns(core, self.src) / rate


@instruction(ASSUMED, "as one dma_copy for each source")
class DmaCompute(Instruction):
    """Add up to 16 tensors in float32 on the way to dst."""

    CONVERT = {"srcs": tuple, "scales": tuple}
    MEMORIES = {"dst": ANYWHERE - {Buffer.psum}, "srcs": ANYWHERE - {Buffer.psum}}
    ENGINES = (Engine.dma,)
    CHOICES = {"unique_indices": (True,)}

    dst: NkiTensor
    srcs: tuple[NkiTensor, ...]
    reduce_op: Any
    scales: tuple[float, ...] | None = None
    unique_indices: bool = True
    oob_mode: OobMode = OobMode.error

    def check(self, core: Core) -> None:
        rules.limit(self.OPCODE, "number of sources", len(self.srcs), 16)
        rules.is_among(self.OPCODE, "reduce_op", as_operator(self.reduce_op, "reduce_op").name, ("add",))
        for scale in self.scales or ():
            rules.is_among(self.OPCODE, "scales", scale, (1.0,))
        for source in self.srcs:
            rules.same_elements(self.OPCODE, self.dst, source)

    def run(self, core: Core) -> None:
        skip = self.oob_mode is OobMode.skip
        total = sum(source.with_skip(skip).floats().reshape(-1) for source in self.srcs)
        assert isinstance(total, torch.Tensor)
        self.dst.with_skip(skip).write(total.reshape(self.dst.shape))

    def cycles(self, core: Core) -> float:
        return sum(cost.dma_ns(core, source) for source in self.srcs)


@instruction(ISA, "max(64, N), 2 N with all tiles in SBUF", elementwise=True)
class TensorCopyPredicated(Instruction):
    """Copy elements of a tile, or a number, to where the predicate is not 0."""

    DTYPES = {"predicate": {"bool", "uint8", "uint16", "uint32"}}
    SAME_DTYPE = ("src", "dst")

    dst: NkiTensor
    src: Operand
    predicate: NkiTensor
    reverse_pred: bool = False

    def check(self, core: Core) -> None:
        rules.not_both_in_psum(self.OPCODE, src=self.src, predicate=self.predicate)
        if isinstance(self.src, NkiTensor):
            rules.same_size(self.OPCODE, src=self.src, dst=self.dst)

    def run(self, core: Core) -> None:
        chosen = (self.predicate.integers() != 0).reshape(self.dst.shape) ^ self.reverse_pred
        shape = self.dst.shape
        source = self.src.read().reshape(shape) if isinstance(self.src, NkiTensor) else torch.tensor(self.src)
        self.dst.write_where(chosen, source.expand(shape))

    def cycles(self, core: Core) -> float:
        tiles = [tile for tile in (self.src, self.predicate) if isinstance(tile, NkiTensor)]
        rate = 2 if all(tile.buffer is Buffer.sbuf for tile in tiles) else 1
        return cost.vector_cycles(core, tiles, self.dst, rate=rate)
