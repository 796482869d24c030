"""The collectives: reductions, gathers, exchanges, and permutations by pairs or around a ring."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from ..core import Rule, current, require
from ..instructions import SBUF, VirtualRegister, execute, function_of
from ..memory import Buffer
from ..operators import Operator, as_operator
from ..tensor import NkiTensor
from .base import HBM, Collective, Parts, ReplicaGroup, collective, reduced

MAX_CHANNELS = 4
"""Most channels of a ring, in groups of all devices of a node; other groups have fewer."""


@collective
class AllReduce(Collective):
    """Reduce tensors over the ranks of a group; each rank gets the result."""

    PLACES = HBM | SBUF

    op: Operator

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        return reduced(parts, self.op)

    def ring(self, count: int) -> tuple[int, float]:
        return 2 * (count - 1), 1 / count


@collective
class AllGather(Collective):
    """Give each rank the tensors of all ranks of its group, joined in a dimension."""

    PLACES = HBM | SBUF

    collective_dim: int

    def check_sizes(self, count: int) -> None:
        dims = (0, 1) if self.srcs[0].buffer is Buffer.sbuf else (0,)
        self.require_shapes(self.collective_dim, dims, grow=count)

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        return torch.cat(parts, self.collective_dim)

    def ring(self, count: int) -> tuple[int, float]:
        return count - 1, 1.0


@collective
class ReduceScatter(Collective):
    """Reduce tensors over the ranks of a group; each rank gets its part of the result."""

    PLACES = HBM | SBUF

    collective_dim: int
    op: Operator

    def check_sizes(self, count: int) -> None:
        self.require_shapes(self.collective_dim, shrink=count)

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        return reduced(parts, self.op).chunk(len(parts), self.collective_dim)[place]


@collective
class AllToAll(Collective):
    """Split tensors into one part for each rank of a group, and join the parts that all ranks have for this one."""

    collective_dim: int

    def check_sizes(self, count: int) -> None:
        self.require_shapes(self.collective_dim)
        for source in self.srcs:
            require(not source.shape[0] % count, Rule.ALL_TO_ALL_PARTS, rows=source.shape[0], parts=count)

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        dim = self.collective_dim
        return torch.cat([part.chunk(len(parts), dim)[place] for part in parts], dim)


@collective
class AllToAllV(Collective):
    """Send each rank of a group as many elements as a tensor in memory says, from where it says."""

    TAKES_ONE = True

    metadata_tensor: NkiTensor = dataclasses.field(repr=False)
    recv_counts_known: bool = False
    has_rdispls: bool = False

    @property
    def table(self) -> torch.Tensor:
        """Counts and places of the exchange, one row each."""
        tensor = self.metadata_tensor
        return tensor.read().reshape(tensor.shape[-2:]).to(torch.int64)

    def check_sizes(self, count: int) -> None:
        tensor, rows = self.metadata_tensor, 4 if self.has_rdispls else 3
        shape = (1, rows, count) if tensor.buffer is Buffer.sbuf else (rows, count)
        places = ", places to receive" if self.has_rdispls else ""
        fits = tensor.dtype == "uint32" and tensor.shape == shape
        require(fits, Rule.METADATA, instruction=self.OPCODE, tensor=tensor, shape=shape, rest=places)

    def posted(self) -> tuple[tuple[Any, ...], tuple[torch.Tensor, ...]]:
        source, (sizes, starts, *_) = self.srcs[0].read().reshape(-1), self.table
        pieces = []
        for first, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            self._require_inside("source", first + size, source.numel())
            pieces.append(source[first : first + size])
        return (), (torch.cat(pieces), sizes)

    def results(self, parts: Parts, group: tuple[int, ...], place: int) -> Sequence[torch.Tensor | None]:
        table, target = self.table, self.dsts[0]
        target.storage.settle()
        flat, slot = target.data.reshape(-1).clone(), target.size // len(group)
        for number, rank in enumerate(group):
            values, lengths = parts[rank]
            start = int(lengths[:place].sum())
            piece = values[start : start + int(lengths[place])]
            begin = int(table[3, number]) if self.has_rdispls else slot * number
            self._require_inside("result", begin + piece.numel(), flat.numel())
            flat[begin : begin + piece.numel()] = piece
        if not self.recv_counts_known:
            table[2] = torch.stack([parts[rank][1][place] for rank in group])
            self.metadata_tensor.write(table.reshape(self.metadata_tensor.shape))
        return [flat]

    def _require_inside(self, what: str, end: int, size: int) -> None:
        require(end <= size, Rule.METADATA_BOUNDS, instruction=self.OPCODE, element=end - 1, what=what, size=size)

    def ring(self, count: int) -> tuple[int, float]:
        return count - 1, float(self.table[0].sum()) / max(1, self.srcs[0].size) / max(1, count - 1)


@collective
class AllGatherV(AllToAllV):
    """Gather as many elements of each rank of a group as a tensor in memory says, in equal slots of the result."""


all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_v, all_gather_v = (
    function_of(kind, last=("priority", "name"))
    for kind in (AllReduce, AllGather, ReduceScatter, AllToAll, AllToAllV, AllGatherV)
)


@collective
class CollectivePermute(Collective):
    """One tensor from the first rank of each pair to the second."""

    TAKES_ONE = True

    pairs: tuple[tuple[int, int], ...]

    def results(self, parts: Parts, group: tuple[int, ...], place: int) -> Sequence[torch.Tensor | None]:
        return [next((parts[source][0] for source, target in self.pairs if target == group[place]), None)]

    def ring(self, count: int) -> tuple[int, float]:
        return 1, 1.0


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
    is_once = len(set(sources)) == len(set(targets)) == len(pairs)
    is_inside = all(rank < core.world.size for rank in (*sources, *targets))
    require(is_once and is_inside, Rule.PERMUTE_PAIRS, pairs=list(pairs), core=core)
    if core.rank_id in (*sources, *targets):
        group = ReplicaGroup([sorted({*sources, *targets})])
        options: dict[str, Any] = {"replica_group": group, "priority": priority, "name": name}
        execute(CollectivePermute(srcs=tuple(srcs), dsts=tuple(dsts), pairs=pairs, **options))


@collective
class CollectivePermuteImplicit(Collective):
    """One tensor to the next rank of the ring."""

    TAKES_ONE = True

    def combine(self, parts: list[torch.Tensor], place: int) -> torch.Tensor:
        return parts[place - 1]

    def ring(self, count: int) -> tuple[int, float]:
        return 1, 1.0


@collective
class CollectivePermuteImplicitReduce(Collective):
    """The reduction of two tensors to the next rank of the ring; two sources, so the result is there twice."""

    op: Operator

    def results(self, parts: Parts, group: tuple[int, ...], place: int) -> Sequence[torch.Tensor | None]:
        return [reduced(parts[group[place - 1]], self.op), None]

    def ring(self, count: int) -> tuple[int, float]:
        return 1, 0.5


def _check_channels(opcode: str, channel_ids: Sequence[int], *lists: Any) -> None:
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
    _check_channels(CollectivePermuteImplicit.OPCODE, channel_ids, srcs_by_channel, dsts_by_channel)
    options: dict[str, Any] = {"replica_group": replica_group, "priority": priority, "name": name}
    for source, target in zip(srcs_by_channel, dsts_by_channel, strict=True):
        execute(CollectivePermuteImplicit(srcs=tuple(source), dsts=tuple(target), **options))


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
    opcode = CollectivePermuteImplicitReduce.OPCODE
    _check_channels(opcode, channel_ids, srcs0_by_channel, srcs1_by_channel, dsts_by_channel)
    options: dict[str, Any] = {"replica_group": replica_group, "priority": priority, "name": name}
    for first, second, target in zip(srcs0_by_channel, srcs1_by_channel, dsts_by_channel, strict=True):
        srcs, dsts = (*first, *second), (*target, *target)
        execute(CollectivePermuteImplicitReduce(srcs=srcs, dsts=dsts, op=as_operator(op), **options))


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int, replica_group: ReplicaGroup, channel_id: int = 0, name: str | None = None
) -> VirtualRegister:
    """Return the rank whose data this one has after so many steps of the ring, in a register."""
    group = replica_group.group_of("collective_permute_implicit_current_processing_rank_id", current())
    return VirtualRegister(group[(group.index(current().rank_id) - int(iteration_id)) % len(group)])


def rank_id(name: str | None = None) -> VirtualRegister:
    """Return the rank of this core, in a register."""
    return VirtualRegister(current().rank_id)
