"""Instructions of two cores that share memory: a barrier, and an exchange of tiles."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable

from .. import cost
from ..core import Core, Rule, require
from ..cost import ASSUMED, V3
from ..memory import Buffer
from ..tensor import NkiTensor
from . import rules
from .base import SBUF, Engine, Instruction, instruction

CORES = (0, 1)
"""Ranks of the cores that make a logical one."""
SWAP_BYTES = {4: 1024, 2: 512, 1: 256}
"""Bytes of a partition that GpSimd exchanges at most, by the size of an element."""


class DmaEngine(enum.Enum):
    """Who transfers in an exchange."""

    dma = 1
    gpsimd_dma = 2


def _require_two_cores(opcode: str, core: Core) -> int:
    require(core.grid.shape == (len(CORES),), Rule.TWO_CORES, opcode=opcode, core=core)
    return core.rank[0]


def _wait(opcode: str, core: Core, ready: Callable[[], bool], cause: str) -> None:
    is_there = core.world.turns.wait(core.number, ready)
    require(is_there, Rule.CORE_DEADLOCK, opcode=opcode, core=core.rank[0], cause=cause)


@instruction(ASSUMED, "100")
class CoreBarrier(Instruction):
    """Wait until both cores are here, so that both see what the other wrote to `data`; needs NeuronCore-v3."""

    CONVERT = {"cores": tuple}
    CHOICES = {"cores": (CORES,)}
    MEMORIES = {"data": frozenset({Buffer.hbm, Buffer.shared_hbm})}
    ENGINES = (Engine.gpsimd, Engine.vector, Engine.scalar, Engine.tensor, Engine.sync)
    MIN_GENERATION = 3

    data: NkiTensor
    cores: tuple[int, ...]
    engine: Engine = Engine.gpsimd

    def run(self, core: Core) -> None:
        rank, arrivals = _require_two_cores(self.OPCODE, core), core.grid.arrivals
        arrivals[rank] = arrivals.get(rank, 0) + 1
        count = arrivals[rank]
        _wait(
            self.OPCODE,
            core,
            lambda: all(arrivals.get(other, 0) >= count for other in CORES),
            "the other core reaches no barrier",
        )

    def cycles(self, core: Core) -> float:
        """Return what an instruction that waits is longer; no figure of barriers is published."""
        return core.timing.dependent_instruction_cycles


@instruction(V3, "bytes at the rate of GpSimd's DMA, or as dma_copy", elementwise=True)
class Sendrecv(Instruction):
    """Send a tile to a core and receive one; exchanges of one `pipe_id` are in order; needs NeuronCore-v3."""

    CONVERT = {"send_to_rank": int, "recv_from_rank": int, "pipe_id": int}
    MEMORIES = {"src": SBUF, "dst": SBUF}
    SAME_DTYPE = ("src", "dst")
    CHOICES = dict.fromkeys(("send_to_rank", "recv_from_rank"), CORES)
    ENGINES = (Engine.dma,)
    MIN_GENERATION = 3

    src: NkiTensor
    dst: NkiTensor
    send_to_rank: int
    recv_from_rank: int
    pipe_id: int
    dma_engine: DmaEngine = DmaEngine.dma

    def check(self, core: Core) -> None:
        if self.dma_engine is DmaEngine.gpsimd_dma:
            size = self.src.storage.format.size_bytes
            moved = self.src.elements_per_partition * size
            rules.limit(self.OPCODE, "bytes per partition through gpsimd_dma", moved, SWAP_BYTES[size])

    def run(self, core: Core) -> None:
        rank, mail = _require_two_cores(self.OPCODE, core), core.grid.mail
        mail.setdefault((self.pipe_id, rank, self.send_to_rank), deque()).append(self.src.read().clone())
        box = mail.setdefault((self.pipe_id, self.recv_from_rank, rank), deque())
        cause = f"core {self.recv_from_rank} sends nothing through pipe {self.pipe_id}"
        _wait(self.OPCODE, core, lambda: bool(box), cause)
        self.dst.write(box.popleft())

    def cycles(self, core: Core) -> float:
        """Return the time of a DMA, or of GpSimd's transfers where their rate is published."""
        gpsimd = core.spec.gpsimd
        rate = None if gpsimd is None else gpsimd.dma_bytes_per_s
        if self.dma_engine is DmaEngine.dma or rate is None:
            return cost.dma_ns(core, self.src)
        return self.src.size * self.src.storage.format.size_bytes / rate * 1e9
