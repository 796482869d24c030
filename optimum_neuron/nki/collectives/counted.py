"""Collectives whose ranks send different numbers of elements, which only the device knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from ..core import Core, Rule, current, require
from ..exchange import exchange
from ..instructions import execute
from ..memory import Buffer
from ..tensor import NkiTensor
from .base import HBM, Collective, Parts, check_priority
from .groups import ReplicaGroup, tensor_pair


def _metadata(opcode: str, tensor: NkiTensor, count: int, has_rdispls: bool) -> torch.Tensor:
    """Return the counts and places of the exchange, one row each."""
    rows = 4 if has_rdispls else 3
    shape = (1, rows, count) if tensor.buffer is Buffer.sbuf else (rows, count)
    places = ", places to receive" if has_rdispls else ""
    fits = tensor.dtype == "uint32" and tensor.shape == shape
    require(fits, Rule.METADATA, instruction=opcode, tensor=tensor, shape=shape, rest=places)
    return tensor.read().reshape(rows, count).to(torch.int64)


def _by_counts(opcode: str, srcs: object, dsts: object, options: dict[str, Any]) -> None:
    """Send each rank of a group its elements, as many and from where the metadata say."""
    core, metadata = current(), options["metadata_tensor"]
    group = options["replica_group"].group_of(opcode, core)
    pair = tensor_pair(opcode, srcs, dsts, memories=HBM, many=False)
    check_priority(opcode, core, options["priority"])
    count, place = len(group), group.index(core.rank_id)
    table = _metadata(opcode, metadata, count, options["has_rdispls"])
    source, target = pair[0][0].read().reshape(-1), pair[1][0]
    pieces = []
    for number in range(count):
        first, size = int(table[1, number]), int(table[0, number])
        _require_inside(opcode, "source", first + size, source.numel())
        pieces.append(source[first : first + size])

    def taken(parts: Parts, call: Collective, own: int) -> list[torch.Tensor | None]:
        target.storage.settle()
        flat, slot = target.data.reshape(-1).clone(), target.size // count
        for number, rank in enumerate(group):
            lengths, values = parts[rank][-1], parts[rank][0]
            start = int(lengths[:own].sum())
            piece = values[start : start + int(lengths[own])]
            begin = int(table[3, number]) if options["has_rdispls"] else slot * number
            _require_inside(opcode, "result", begin + piece.numel(), flat.numel())
            flat[begin : begin + piece.numel()] = piece
        counts = torch.stack([parts[rank][-1][own] for rank in group])
        if not options["recv_counts_known"]:
            table[2] = counts
            metadata.write(table.reshape(metadata.shape))
        return [flat]

    call = _Counted(
        opcode=opcode,
        srcs=pair[0],
        dsts=pair[1],
        group=group,
        name=options["name"],
        steps=count - 1,
        share=float(table[0].sum()) / max(1, source.numel()) / max(1, count - 1),
        combine=taken,
        posted=(torch.cat(pieces), table[0]),
    )
    assert call.group[place] == core.rank_id
    execute(call)


def _require_inside(opcode: str, what: str, end: int, size: int) -> None:
    require(end <= size, Rule.METADATA_BOUNDS, instruction=opcode, element=end - 1, what=what, size=size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Counted(Collective):
    """A collective whose ranks send different numbers of elements."""

    posted: tuple[torch.Tensor, ...] = dataclasses.field(repr=False)

    def run(self, core: Core) -> None:
        parts = exchange(core, self.group, self.opcode, (self.srcs[0].dtype,), self.posted)
        if parts is None:
            return
        for target, values in zip(self.dsts, self.combine(parts, self, self.group.index(core.rank_id)), strict=True):
            assert values is not None
            target.write(values)


def _function(name: str, doc: str) -> Callable[..., None]:
    def function(
        srcs: list[Any],
        dsts: list[Any],
        replica_group: ReplicaGroup,
        metadata_tensor: NkiTensor,
        recv_counts_known: bool = False,
        has_rdispls: bool = False,
        priority: int | None = None,
        name: str | None = None,
    ) -> None:
        options = {"metadata_tensor": metadata_tensor, "priority": priority, "name": name}
        flags = {"recv_counts_known": recv_counts_known, "has_rdispls": has_rdispls}
        _by_counts(function.__name__, srcs, dsts, {"replica_group": replica_group, **options, **flags})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


all_to_all_v = _function(
    "all_to_all_v", "Send each rank of a group as many elements as a tensor in memory says, from where it says."
)
all_gather_v = _function(
    "all_gather_v",
    "Gather as many elements of each rank of a group as a tensor in memory says, in equal slots of the result.",
)
