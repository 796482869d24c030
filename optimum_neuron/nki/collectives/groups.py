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


class Call:
    """One call of a collective: its group, and tensors that keep the rules that all collectives share."""

    def __init__(
        self,
        opcode: str,
        group: ReplicaGroup | tuple[int, ...],
        srcs: Any,
        dsts: Any,
        memories: frozenset[Buffer],
        *,
        many: bool = True,
    ) -> None:
        self.opcode, self.srcs, self.dsts = opcode, tuple(srcs), tuple(dsts)
        self.group = group.group_of(opcode, current()) if isinstance(group, ReplicaGroup) else group
        both = (*self.srcs, *self.dsts)
        problem = None
        places = {tensor.buffer for tensor in both if isinstance(tensor, NkiTensor)}
        if not all(isinstance(tensor, NkiTensor) for tensor in both) or not 0 < len(self.srcs) == len(self.dsts):
            problem = "takes lists of tensors, as many sources as results", "Pass srcs=[x], dsts=[y]."
        elif not places <= memories or (Buffer.sbuf in places and len(places) > 1):
            names = " or all in ".join(sorted({"hbm" if place.is_hbm else place.value for place in memories}))
            problem = f"takes tensors that are all in {names}", "Copy them with nisa.dma_copy first."
        elif len(self.srcs) > 1 and (not many or places & SBUF):
            problem = "takes one tensor here; several go together only in HBM", "Call it once for each tensor."
        elif any(source.dtype != target.dtype for source, target in zip(self.srcs, self.dsts, strict=True)):
            problem = "converts no dtypes", "Give sources and results the same dtype."
        require(problem is None, Rule.COLLECTIVE_TENSORS, instruction=opcode, problem=problem)

    @property
    def count(self) -> int:
        """Ranks of the group."""
        return len(self.group)

    def require_shapes(self, dim: int = 0, dims: tuple[int, ...] = (0,), *, grow: int = 1, shrink: int = 1) -> None:
        """Require results of the sizes of sources, but for one dimension, times `grow` and divided by `shrink`."""
        choices = " or ".join(map(str, dims))
        require(dim in dims, Rule.COLLECTIVE_DIM, instruction=self.opcode, axis=dim, choices=choices)
        for source, target in zip(self.srcs, self.dsts, strict=True):
            wanted = list(source.shape)
            wanted[dim] = wanted[dim] * grow / shrink
            fits = list(target.shape) == wanted
            require(fits, Rule.COLLECTIVE_SHAPE, instruction=self.opcode, source=source, wanted=wanted, target=target)

    def run(self, priority: int | None, name: str | None, **parts: Any) -> None:
        """Exchange; `parts` are the other fields of `Collective`."""
        check_priority(self.opcode, current(), priority)
        facts: dict[str, Any] = {
            "opcode": self.opcode,
            "srcs": self.srcs,
            "dsts": self.dsts,
            "group": self.group,
            "name": name,
        }
        execute(Collective(**facts, **parts))


def reduction(opcode: str, op: object) -> Operator:
    operator = as_operator(op)
    require(operator.name in _REDUCTIONS, Rule.COLLECTIVE_OPERATOR, instruction=opcode, operator=operator)
    return operator
