"""Collectives between ranks: what is exchanged, how it is combined, and how long it takes.

Times follow a ring: a step takes one hop (the published 1 to 2 us inside of a server, the mean of both) and moves its
part of the bytes at the full rate of a core's DMA engines. Links between chips are slower, and ranks that come late
are waited for: neither is simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from ..core import Core, Rule, kernel_line, refuse
from ..exchange import exchange
from ..instructions import Engine, Instruction, is_among
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor

Parts = dict[int, tuple[torch.Tensor, ...]]
HBM = frozenset({Buffer.hbm, Buffer.private_hbm, Buffer.shared_hbm})
ANYWHERE = HBM | {Buffer.sbuf}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective(Instruction):
    """One collective on one rank."""

    READS = ("srcs",)
    WRITES = ("dsts",)
    ENGINES = (Engine.dma,)
    MEMORIES = {"srcs": ANYWHERE, "dsts": ANYWHERE}

    opcode: str = dataclasses.field(repr=False)
    srcs: tuple[NkiTensor, ...]
    dsts: tuple[NkiTensor, ...]
    group: tuple[int, ...]
    op: Operator | None = None
    dim: int = 0
    steps: int = dataclasses.field(repr=False)
    share: float = dataclasses.field(repr=False)
    """Share of the bytes of a source that each step moves."""
    combine: Callable[[Parts, Collective, int], Sequence[torch.Tensor | None]] = dataclasses.field(repr=False)
    """From what all ranks posted, the collective and this rank's place in the group to its results."""
    posted: tuple[torch.Tensor, ...] | None = dataclasses.field(default=None, repr=False)
    """What this rank posts; None for all sources, which then have the same sizes on all ranks."""

    @property
    def OPCODE(self) -> str:  # type: ignore[override]  # noqa: N802 - a constant of the other instructions
        """Name of the function."""
        return self.opcode

    def check(self, core: Core) -> None:
        """Refuse arguments of the kernel where the hardware's rules hold; results are noted and refused at the end."""
        if not core.platform_rules:
            return
        line = kernel_line()
        core.exchanged |= {tensor.storage.number: line for tensor in (*self.srcs, *self.dsts)}
        for tensor in (*self.srcs, *self.dsts):
            if tensor.buffer.is_hbm and not tensor.storage.line:
                refuse(Rule.EXCHANGED, tensor=tensor.name, line=line)

    def run(self, core: Core) -> None:
        """Exchange with the group, and write what this rank gets."""
        sizes = tuple(source.shape for source in self.srcs) if self.posted is None else ()
        terms = (sizes, tuple(source.dtype for source in self.srcs), self.op)
        sources = tuple(source.read() for source in self.srcs) if self.posted is None else self.posted
        is_own = any(target.buffer.is_on_chip for target in self.dsts)  # SBUF is that of one physical core
        parts = exchange(core, self.group, self.opcode, terms, sources, place=core.rank if is_own else ())
        if parts is None:
            return
        results = self.combine(parts, self, self.group.index(core.rank_id))
        for target, values in zip(self.dsts, results, strict=True):
            if values is not None:
                target.write(values)

    def cycles(self, core: Core) -> float:
        """Return nanoseconds."""
        spec, hop = core.spec, core.timing.collective_hop_us
        assert spec.num_dma_engines is not None and spec.dma_engine_bytes_per_s is not None
        moved = sum(source.size * source.storage.format.size_bytes for source in self.srcs) * self.share
        rate = spec.num_dma_engines * spec.dma_engine_bytes_per_s
        step_ns = sum(hop) / len(hop) * 1e3 + moved / rate * 1e9
        return core.timing.dma_start_ns + self.steps * step_ns


def reduced(parts: Sequence[torch.Tensor], op: Operator) -> torch.Tensor:
    """Return tensors combined in float32, in the order of ranks."""
    total = parts[0].float()
    for part in parts[1:]:
        total = op.function(total, part.float())
    return total


def all_reduced(parts: Parts, call: Collective, place: int) -> list[torch.Tensor | None]:
    """Return the reduction of each tensor."""
    assert call.op is not None
    return [reduced([parts[rank][number] for rank in call.group], call.op) for number in range(len(call.srcs))]


def gathered(parts: Parts, call: Collective, place: int) -> list[torch.Tensor | None]:
    """Return each tensor of all ranks, one after the other."""
    return [torch.cat([parts[rank][number] for rank in call.group], call.dim) for number in range(len(call.srcs))]


def scattered(parts: Parts, call: Collective, place: int) -> list[torch.Tensor | None]:
    """Return this rank's part of the reduction of each tensor."""
    whole = all_reduced(parts, call, place)
    return [tensor.chunk(len(call.group), call.dim)[place] for tensor in whole if tensor is not None]


def exchanged(parts: Parts, call: Collective, place: int) -> list[torch.Tensor | None]:
    """Return this rank's part of each tensor of all ranks."""
    count = len(call.group)
    return [
        torch.cat([parts[rank][number].chunk(count, call.dim)[place] for rank in call.group], call.dim)
        for number in range(len(call.srcs))
    ]


def passed_on(parts: Parts, call: Collective, place: int) -> list[torch.Tensor | None]:
    """Return the tensors of the rank before this one in the ring."""
    return list(parts[call.group[place - 1]])


def check_priority(opcode: str, core: Core, priority: int | None) -> None:
    """Refuse a priority that the core has not."""
    if priority is not None:
        is_among(opcode, "priority", priority, (0, 1, 2, 3) if core.generation >= 4 else ())
