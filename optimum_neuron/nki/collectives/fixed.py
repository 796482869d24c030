"""Collectives whose ranks send as much as each other."""

from __future__ import annotations

from typing import Any

from ..core import Rule, current, require
from ..instructions import SBUF
from ..memory import Buffer
from .base import HBM, all_reduced, exchanged, gathered, scattered
from .groups import ReplicaGroup, reduction, require_shapes, run_collective, tensor_pair


def all_reduce(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    op: object,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Reduce tensors over the ranks of a group; each rank gets the result."""
    opcode, group = "all_reduce", replica_group.group_of("all_reduce", current())
    pair = tensor_pair(opcode, srcs, dsts, memories=HBM | SBUF, many=True)
    require_shapes(opcode, pair, 0, (0,), 1, 1)
    count = len(group)
    ring = {"steps": 2 * (count - 1), "share": 1 / count, "combine": all_reduced}
    run_collective(opcode, pair, group, priority, name, op=reduction(opcode, op), **ring)


def all_gather(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Give each rank the tensors of all ranks of its group, joined in a dimension."""
    opcode, group = "all_gather", replica_group.group_of("all_gather", current())
    pair = tensor_pair(opcode, srcs, dsts, memories=HBM | SBUF, many=True)
    require_shapes(opcode, pair, collective_dim, (0, 1) if pair[0][0].buffer is Buffer.sbuf else (0,), len(group), 1)
    ring = {"steps": len(group) - 1, "share": 1.0, "combine": gathered}
    run_collective(opcode, pair, group, priority, name, dim=collective_dim, **ring)


def reduce_scatter(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: object,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Reduce tensors over the ranks of a group; each rank gets its part of the result."""
    opcode, group = "reduce_scatter", replica_group.group_of("reduce_scatter", current())
    pair = tensor_pair(opcode, srcs, dsts, memories=HBM | SBUF, many=True)
    count = len(group)
    require_shapes(opcode, pair, collective_dim, (0,), 1, count)
    ring = {"steps": count - 1, "share": 1 / count, "combine": scattered}
    run_collective(opcode, pair, group, priority, name, op=reduction(opcode, op), dim=collective_dim, **ring)


def all_to_all(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Split tensors into one part for each rank of a group, and join the parts that all ranks have for this one."""
    opcode, group = "all_to_all", replica_group.group_of("all_to_all", current())
    pair = tensor_pair(opcode, srcs, dsts, memories=HBM, many=True)
    require_shapes(opcode, pair, collective_dim, (0,), 1, 1)
    for source in pair[0]:
        require(not source.shape[0] % len(group), Rule.ALL_TO_ALL_PARTS, rows=source.shape[0], parts=len(group))
    ring = {"steps": len(group) - 1, "share": 1 / len(group), "combine": exchanged}
    run_collective(opcode, pair, group, priority, name, dim=collective_dim, **ring)
