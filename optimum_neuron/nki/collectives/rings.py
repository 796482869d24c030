"""Permutations: each rank sends to one other, by pairs or around a ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..core import Rule, current, require
from ..instructions import VirtualRegister
from .base import HBM, Collective, Parts, passed_on, reduced
from .groups import Call, ReplicaGroup, reduction

MAX_CHANNELS = 4
"""Most channels of a ring, in groups of all devices of a node; other groups have fewer."""


def collective_permute(
    srcs: list[Any],
    dsts: list[Any],
    source_target_pairs: Sequence[tuple[int, int]],
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send a tensor from the first rank of each pair to the second; the results of other ranks stay as they are."""
    core = current()
    pairs = tuple((int(source), int(target)) for source, target in source_target_pairs)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    ranks = tuple(sorted({*sources, *targets}))
    is_once = len(set(sources)) == len(set(targets)) == len(pairs)
    is_inside = all(rank < core.world.size for rank in ranks)
    require(is_once and is_inside, Rule.PERMUTE_PAIRS, pairs=list(pairs), core=core)
    if core.rank_id not in ranks:
        return
    call = Call("collective_permute", ranks, srcs, dsts, HBM, many=False)
    call.require_shapes()
    origin = dict(zip(targets, sources, strict=True)).get(core.rank_id)

    def taken(parts: Parts, one: Collective, place: int) -> list[torch.Tensor | None]:
        return [None if origin is None else parts[origin][0]]

    call.run(priority, name, steps=1, share=1.0, combine=taken)


def _channels(opcode: str, channel_ids: Sequence[int], *lists: Any) -> None:
    numbers = list(channel_ids)
    are_ids = numbers == list(range(len(numbers))) and 1 <= len(numbers) <= MAX_CHANNELS
    require(are_ids, Rule.CHANNEL_IDS, instruction=opcode, numbers=numbers, maximum=MAX_CHANNELS)
    fits = all(len(one) == len(numbers) and all(len(tensors) == 1 for tensors in one) for one in lists)
    require(fits, Rule.CHANNEL_LISTS, instruction=opcode, count=len(numbers))


def collective_permute_implicit(
    srcs_by_channel: list[list[Any]],
    dsts_by_channel: list[list[Any]],
    replica_group: ReplicaGroup,
    channel_ids: list[int] = [0],  # noqa: B006 - the vendor's default; it is not changed
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send a tensor for each channel to the next rank of the ring, and receive from the one before."""
    opcode, group = "collective_permute_implicit", replica_group.group_of("collective_permute_implicit", current())
    _channels(opcode, channel_ids, srcs_by_channel, dsts_by_channel)
    for source, target in zip(srcs_by_channel, dsts_by_channel, strict=True):
        call = Call(opcode, group, source, target, HBM, many=False)
        call.require_shapes()
        call.run(priority, name, steps=1, share=1.0, combine=passed_on)


def collective_permute_implicit_reduce(
    srcs0_by_channel: list[list[Any]],
    srcs1_by_channel: list[list[Any]],
    dsts_by_channel: list[list[Any]],
    replica_group: ReplicaGroup,
    op: object,
    channel_ids: list[int] = [0],  # noqa: B006 - the vendor's default; it is not changed
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Send `op(first, second)` for each channel to the next rank of the ring, and receive from the one before."""
    opcode = "collective_permute_implicit_reduce"
    group, operator = replica_group.group_of(opcode, current()), reduction(opcode, op)
    _channels(opcode, channel_ids, srcs0_by_channel, srcs1_by_channel, dsts_by_channel)

    def taken(parts: Parts, one: Collective, place: int) -> list[torch.Tensor | None]:
        return [reduced(parts[group[place - 1]], operator), None]

    for first, second, target in zip(srcs0_by_channel, srcs1_by_channel, dsts_by_channel, strict=True):
        call = Call(opcode, group, [*first, *second], [*target, *target], HBM)
        call.require_shapes()
        call.run(priority, name, op=operator, steps=1, share=0.5, combine=taken)


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """Return the rank whose data this one has after so many steps of the ring, in a register."""
    group = replica_group.group_of("collective_permute_implicit_current_processing_rank_id", current())
    return VirtualRegister(group[(group.index(current().rank_id) - int(iteration_id)) % len(group)])


def rank_id(name: str | None = None) -> VirtualRegister:
    """Return the rank of this core, in a register."""
    return VirtualRegister(current().rank_id)
