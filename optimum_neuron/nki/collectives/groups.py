"""Groups of ranks, and the rules that all collectives share."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..core import Core, Rule, current, require
from ..instructions import SBUF, execute
from ..memory import Buffer
from ..operators import Operator, as_operator
from ..tensor import NkiTensor
from .base import Collective, check_priority

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


def tensor_pair(
    opcode: str, srcs: Any, dsts: Any, *, memories: frozenset[Buffer], many: bool
) -> tuple[tuple[NkiTensor, ...], tuple[NkiTensor, ...]]:
    """Return sources and results, which must be as many, of equal dtypes, and all in HBM or all in SBUF."""
    pair = tuple(srcs), tuple(dsts)
    both = (*pair[0], *pair[1])
    problem = None
    places = {tensor.buffer for tensor in both if isinstance(tensor, NkiTensor)}
    if not all(isinstance(tensor, NkiTensor) for tensor in both) or not pair[0] or len(pair[0]) != len(pair[1]):
        problem = "takes lists of tensors, as many sources as results", "Pass srcs=[x], dsts=[y]."
    elif not places <= memories or (Buffer.sbuf in places and len(places) > 1):
        names = " or all in ".join(sorted({"hbm" if place.is_hbm else place.value for place in memories}))
        problem = f"takes tensors that are all in {names}", "Copy them with nisa.dma_copy first."
    elif len(pair[0]) > 1 and (not many or places & SBUF):
        problem = "takes one tensor here; several go together only in HBM", "Call it once for each tensor."
    elif any(source.dtype != target.dtype for source, target in zip(*pair, strict=True)):
        problem = "converts no dtypes", "Give sources and results the same dtype."
    require(problem is None, Rule.COLLECTIVE_TENSORS, instruction=opcode, problem=problem)
    return pair


def require_shapes(opcode: str, pair: Any, dim: int, dims: tuple[int, ...], grow: int, shrink: int) -> None:
    """Require that results have the sizes of sources, but for one dimension, times `grow` and divided by `shrink`."""
    require(dim in dims, Rule.COLLECTIVE_DIM, instruction=opcode, axis=dim, choices=" or ".join(map(str, dims)))
    for source, target in zip(*pair, strict=True):
        wanted = list(source.shape)
        wanted[dim] = wanted[dim] * grow / shrink
        fits = list(target.shape) == wanted
        require(fits, Rule.COLLECTIVE_SHAPE, instruction=opcode, source=source, wanted=wanted, target=target)


def reduction(opcode: str, op: object) -> Operator:
    operator = as_operator(op)
    require(operator.name in _REDUCTIONS, Rule.COLLECTIVE_OPERATOR, instruction=opcode, operator=operator)
    return operator


def run_collective(
    opcode: str, pair: Any, group: tuple[int, ...], priority: int | None, name: str | None, **parts: Any
) -> None:
    check_priority(opcode, current(), priority)
    execute(Collective(opcode=opcode, srcs=pair[0], dsts=pair[1], group=group, name=name, **parts))
