"""What collectives have in common: groups of ranks, the rules of their tensors, the exchange, and how long it takes.

A collective is a dataclass, and its function has the fields as parameters, as those of `nki.isa`. A subclass says which
sizes results have, what a rank makes of what all posted, and how it goes around the ring.

Times follow a ring: a step takes one hop (the published 1 to 2 us inside of a server, the mean of both) and moves its
part of the bytes at the full rate of a core's DMA engines. Links between chips are slower, and ranks that come late
are waited for: neither is simulated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch

from ..core import Core, Rule, kernel_line, refuse, require
from ..exchange import exchange
from ..instructions import SBUF, Engine, Instruction, is_among, name_of
from ..memory import Buffer
from ..operators import Operator
from ..tensor import NkiTensor

Parts = dict[int, tuple[torch.Tensor, ...]]
"""What ranks posted."""
HBM = frozenset({Buffer.hbm, Buffer.private_hbm, Buffer.shared_hbm})
_REDUCTIONS = ("add", "minimum", "maximum")


@dataclasses.dataclass
class ReplicaGroup:
    """Ranks that take part in a collective: lists of ranks that have none in common."""

    groups: Any

    def __post_init__(self) -> None:
        self.groups = tuple(tuple(int(rank) for rank in group) for group in self.groups)

    def group_of(self, opcode: str, core: Core) -> tuple[int, ...]:
        """Return the list of this core's rank."""
        ranks = [rank for group in self.groups for rank in group]
        problem = None
        if len(set(ranks)) < len(ranks):
            problem = "name a rank twice", "Give each rank one place."
        elif len({len(group) for group in self.groups}) > 1:
            problem = "have different sizes", "Give all lists as many ranks."
        elif any(not 0 <= rank < core.world.size for rank in ranks):
            problem = (
                f"name ranks beyond the {core.world.size} of this launch",
                "Run the kernel on all of its ranks, with launch_ranks of optimum_neuron.nki.",
            )
        elif core.rank_id not in ranks:
            problem = f"do not have rank {core.rank_id}, which calls", "Let only ranks of a group call."
        require(problem is None, Rule.REPLICA_GROUP, instruction=opcode, lists=self.groups, problem=problem)
        return next(group for group in self.groups if core.rank_id in group)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collective(Instruction):
    """One collective on one rank."""

    READS = ("srcs",)
    WRITES = ("dsts",)
    ENGINES = (Engine.dma,)
    MEMORIES = dict.fromkeys(("srcs", "dsts"), frozenset(Buffer))
    CONVERT = {"srcs": tuple, "dsts": tuple}
    PLACES: ClassVar[frozenset[Buffer]] = HBM
    """Where its tensors may be: in HBM, or all in SBUF."""
    TAKES_ONE: ClassVar[bool] = False
    """Whether it takes one tensor."""

    srcs: tuple[NkiTensor, ...]
    dsts: tuple[NkiTensor, ...]
    replica_group: ReplicaGroup
    priority: int | None = None

    def _group(self, core: Core) -> tuple[int, ...]:
        return self.replica_group.group_of(self.OPCODE, core)

    def check(self, core: Core) -> None:
        """Check the rules of all collectives; with the hardware's, results are noted and refused at the end."""
        count = len(self._group(core))
        problem = self._problem()
        require(problem is None, Rule.COLLECTIVE_TENSORS, instruction=self.OPCODE, problem=problem)
        self.check_sizes(count)
        for operator in self._operators:
            is_known = operator.name in _REDUCTIONS
            require(is_known, Rule.COLLECTIVE_OPERATOR, instruction=self.OPCODE, operator=operator)
        if self.priority is not None:
            is_among(self.OPCODE, "priority", self.priority, (0, 1, 2, 3) if core.generation >= 4 else ())
        if not core.platform_rules:
            return
        line = kernel_line()
        core.exchanged |= {tensor.storage.number: line for tensor in (*self.srcs, *self.dsts)}
        for tensor in (*self.srcs, *self.dsts):
            if tensor.buffer.is_hbm and not tensor.storage.line:
                refuse(Rule.EXCHANGED, tensor=tensor.name, line=line)

    def _problem(self) -> tuple[str, str] | None:
        """Return what is wrong with the tensors, and what to do."""
        both = (*self.srcs, *self.dsts)
        places = {tensor.buffer for tensor in both if isinstance(tensor, NkiTensor)}
        if not all(isinstance(tensor, NkiTensor) for tensor in both) or not 0 < len(self.srcs) == len(self.dsts):
            return "takes lists of tensors, as many sources as results", "Pass srcs=[x], dsts=[y]."
        if not places <= self.PLACES or (Buffer.sbuf in places and len(places) > 1):
            names = " or all in ".join(sorted({"hbm" if place.is_hbm else place.value for place in self.PLACES}))
            return f"takes tensors that are all in {names}", "Copy them with nisa.dma_copy first."
        if len(self.srcs) > 1 and (self.TAKES_ONE or places & SBUF):
            return "takes one tensor here; several go together only in HBM", "Call it once for each tensor."
        if any(source.dtype != target.dtype for source, target in zip(self.srcs, self.dsts, strict=True)):
            return "converts no dtypes", "Give sources and results the same dtype."
        return None

    @property
    def _operators(self) -> list[Operator]:
        return [value for value in vars(self).values() if isinstance(value, Operator)]

    def check_sizes(self, count: int) -> None:
        """Check sizes; `count` ranks take part."""
        self.require_shapes()

    def require_shapes(self, dim: int = 0, dims: tuple[int, ...] = (0,), *, grow: int = 1, shrink: int = 1) -> None:
        """Require results of the sizes of sources, but for one dimension, times `grow` and divided by `shrink`."""
        choices = " or ".join(map(str, dims))
        require(dim in dims, Rule.COLLECTIVE_DIM, instruction=self.OPCODE, axis=dim, choices=choices)
        for source, target in zip(self.srcs, self.dsts, strict=True):
            wanted: list[float] = [*source.shape]
            wanted[dim] = wanted[dim] * grow / shrink
            fits = list(target.shape) == wanted
            require(fits, Rule.COLLECTIVE_SHAPE, instruction=self.OPCODE, source=source, wanted=wanted, target=target)

    def posted(self) -> tuple[tuple[Any, ...], tuple[torch.Tensor, ...]]:
        """Return the sizes that all ranks must have in common, and what this one posts."""
        return tuple(source.shape for source in self.srcs), tuple(source.read() for source in self.srcs)

    def results(self, parts: Parts, group: tuple[int, ...], place: int) -> Sequence[torch.Tensor | None]:
        """Return what is written to each result on the rank at a place of the group; None leaves it."""
        return [self.combine([parts[rank][number] for rank in group], place) for number in range(len(self.srcs))]

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        """Return the result of one tensor of all ranks of the group."""
        raise NotImplementedError

    def run(self, core: Core) -> None:
        """Exchange with the group, and write what this rank gets."""
        group = self._group(core)
        sizes, sources = self.posted()
        dims = [value for name, value in vars(self).items() if name == "collective_dim"]
        terms = (sizes, tuple(source.dtype for source in self.srcs), *self._operators, *dims)
        is_own = any(target.buffer.is_on_chip for target in self.dsts)  # SBUF is that of one physical core
        parts = exchange(core, group, self.OPCODE, terms, sources, place=core.rank if is_own else ())
        if parts is None:
            return
        for target, values in zip(self.dsts, self.results(parts, group, group.index(core.rank_id)), strict=True):
            if values is not None:
                target.write(values)

    def ring(self, count: int) -> tuple[int, float]:
        """Return the steps around the ring, and the share of the bytes of the sources that each one moves."""
        return count - 1, 1 / count

    def cycles(self, core: Core) -> float:
        """Return nanoseconds."""
        spec, hop = core.spec, core.timing.collective_hop_us
        assert spec.num_dma_engines is not None and spec.dma_engine_bytes_per_s is not None
        steps, share = self.ring(len(self._group(core)))
        moved = sum(source.size * source.storage.format.size_bytes for source in self.srcs) * share
        rate = spec.num_dma_engines * spec.dma_engine_bytes_per_s
        step_ns = sum(hop) / len(hop) * 1e3 + moved / rate * 1e9
        return core.timing.dma_start_ns + steps * step_ns


Kind = TypeVar("Kind", bound=Collective)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def collective(cls: type[Kind]) -> type[Kind]:
    """Make a class a collective, named after it."""
    kind = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    kind.OPCODE = name_of(kind)
    return kind


def reduced(parts: Sequence[torch.Tensor], op: Operator) -> torch.Tensor:
    """Return tensors combined in float32, in the order of ranks."""
    total = parts[0].float()
    for part in parts[1:]:
        total = op.function(total, part.float())
    return total
