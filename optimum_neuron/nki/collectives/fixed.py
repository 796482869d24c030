"""Collectives whose ranks send as much as each other."""

from __future__ import annotations

from typing import Any

from ..core import Rule, require
from ..instructions import SBUF
from ..memory import Buffer
from .base import HBM, all_reduced, exchanged, gathered, scattered
from .groups import Call, ReplicaGroup, reduction


def all_reduce(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    op: object,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Reduce tensors over the ranks of a group; each rank gets the result."""
    call = Call("all_reduce", replica_group, srcs, dsts, HBM | SBUF)
    call.require_shapes()
    steps, share = 2 * (call.count - 1), 1 / call.count
    call.run(priority, name, op=reduction("all_reduce", op), steps=steps, share=share, combine=all_reduced)


def all_gather(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Give each rank the tensors of all ranks of its group, joined in a dimension."""
    call = Call("all_gather", replica_group, srcs, dsts, HBM | SBUF)
    call.require_shapes(collective_dim, (0, 1) if call.srcs[0].buffer is Buffer.sbuf else (0,), grow=call.count)
    call.run(priority, name, dim=collective_dim, steps=call.count - 1, share=1.0, combine=gathered)


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
    call = Call("reduce_scatter", replica_group, srcs, dsts, HBM | SBUF)
    call.require_shapes(collective_dim, shrink=call.count)
    ring = {"steps": call.count - 1, "share": 1 / call.count, "combine": scattered}
    call.run(priority, name, op=reduction("reduce_scatter", op), dim=collective_dim, **ring)


def all_to_all(
    srcs: list[Any],
    dsts: list[Any],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Split tensors into one part for each rank of a group, and join the parts that all ranks have for this one."""
    call = Call("all_to_all", replica_group, srcs, dsts, HBM)
    call.require_shapes(collective_dim)
    for source in call.srcs:
        require(not source.shape[0] % call.count, Rule.ALL_TO_ALL_PARTS, rows=source.shape[0], parts=call.count)
    call.run(priority, name, dim=collective_dim, steps=call.count - 1, share=1 / call.count, combine=exchanged)
