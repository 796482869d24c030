"""Collectives whose ranks send different numbers of elements, which only the device knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core import Rule, require
from ..memory import Buffer
from ..tensor import NkiTensor
from .base import HBM, Collective, Parts
from .groups import Call, ReplicaGroup


def _metadata(opcode: str, tensor: NkiTensor, count: int, has_rdispls: bool) -> torch.Tensor:
    """Return the counts and places of the exchange, one row each."""
    rows = 4 if has_rdispls else 3
    shape = (1, rows, count) if tensor.buffer is Buffer.sbuf else (rows, count)
    places = ", places to receive" if has_rdispls else ""
    fits = tensor.dtype == "uint32" and tensor.shape == shape
    require(fits, Rule.METADATA, instruction=opcode, tensor=tensor, shape=shape, rest=places)
    return tensor.read().reshape(rows, count).to(torch.int64)


def _function(opcode: str, doc: str) -> Callable[..., None]:
    """Make the function of a collective that sends each rank as many elements, and from where, as its metadata say."""

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
        call = Call(opcode, replica_group, srcs, dsts, HBM, many=False)
        count = call.count
        table = _metadata(opcode, metadata_tensor, count, has_rdispls)
        source, target = call.srcs[0].read().reshape(-1), call.dsts[0]
        pieces = []
        for first, size in zip(table[1].tolist(), table[0].tolist(), strict=True):
            _require_inside(opcode, "source", first + size, source.numel())
            pieces.append(source[first : first + size])

        def taken(parts: Parts, one: Collective, own: int) -> list[torch.Tensor | None]:
            target.storage.settle()
            flat, slot = target.data.reshape(-1).clone(), target.size // count
            for number, rank in enumerate(call.group):
                values, lengths = parts[rank]
                start = int(lengths[:own].sum())
                piece = values[start : start + int(lengths[own])]
                begin = int(table[3, number]) if has_rdispls else slot * number
                _require_inside(opcode, "result", begin + piece.numel(), flat.numel())
                flat[begin : begin + piece.numel()] = piece
            if not recv_counts_known:
                table[2] = torch.stack([parts[rank][1][own] for rank in call.group])
                metadata_tensor.write(table.reshape(metadata_tensor.shape))
            return [flat]

        share = float(table[0].sum()) / max(1, source.numel()) / max(1, count - 1)
        posted = (torch.cat(pieces), table[0])
        call.run(priority, name, posted=posted, steps=count - 1, share=share, combine=taken)

    function.__name__ = function.__qualname__ = opcode
    function.__doc__ = doc
    return function


def _require_inside(opcode: str, what: str, end: int, size: int) -> None:
    require(end <= size, Rule.METADATA_BOUNDS, instruction=opcode, element=end - 1, what=what, size=size)


all_to_all_v = _function(
    "all_to_all_v", "Send each rank of a group as many elements as a tensor in memory says, from where it says."
)
all_gather_v = _function(
    "all_gather_v",
    "Gather as many elements of each rank of a group as a tensor in memory says, in equal slots of the result.",
)
