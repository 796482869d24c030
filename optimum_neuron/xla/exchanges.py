"""Operators of collectives in the recorded graph: `xla::all_reduce` and others, over host tensors.

Tensors of a device reach them through its dispatcher, which aliases them to host tensors. What they do is in
`collectives.py`, which scripts call.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..compiler import define
from ..errors import ConfigError, invalid_choice
from .links import Link, group_of, link, receive_bytes, send_bytes
from .ordinals import global_ordinal, world_size

_Groups = Sequence[Sequence[int]]
_REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "mul": dist.ReduceOp.PRODUCT,
    "and": dist.ReduceOp.BAND,
    "or": dist.ReduceOp.BOR,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


def require_reduction(name: str) -> None:
    """Check the name of a reduction.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in _REDUCTIONS:
        raise invalid_choice("reduce_type", name, _REDUCTIONS)


def _named(call: str, name: str, groups: _Groups) -> str:
    return f"{call}({name}{f', groups={[list(group) for group in groups]}' if groups else ''})"


def _size(groups: _Groups) -> int:
    return len(groups[0]) if groups else world_size()


def _reduce(call: str, tensors: Sequence[torch.Tensor], name: str, scale: float, groups: _Groups) -> list[torch.Tensor]:
    """New tensors with the reduced values: those of one dtype travel together."""
    group = group_of(groups)
    by_dtype: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(number)
    results: dict[int, torch.Tensor] = {}
    for dtype, numbers in by_dtype.items():
        flat = torch.cat([tensors[number].reshape(-1) for number in numbers])
        flat = flat.byte() if dtype == torch.bool else flat
        _run_reduction(group, _named(call, name, groups), tensors, flat, name)
        flat = flat.to(dtype) if scale == 1 else (flat * scale).to(dtype)
        parts = flat.split([tensors[number].numel() for number in numbers])
        results |= {number: part.view(tensors[number].shape) for number, part in zip(numbers, parts, strict=True)}
    return [results[number] for number in range(len(tensors))]


def _run_reduction(group: Link, call: str, tensors: Sequence[torch.Tensor], flat: torch.Tensor, name: str) -> None:
    options = dist.AllreduceOptions()
    options.reduceOp = _REDUCTIONS[name]
    group.run(call, lambda gloo: gloo.allreduce([flat], options), tensors=tensors)


def _all_reduce(x: torch.Tensor, reduce_type: str, scale: float, groups: _Groups) -> torch.Tensor:
    (result,) = _reduce("all_reduce", [x], reduce_type, scale, groups)
    return result


def _all_reduce_in_place(tensors: list[torch.Tensor], reduce_type: str, scale: float, groups: _Groups) -> None:
    for tensor, result in zip(tensors, _reduce("all_reduce", tensors, reduce_type, scale, groups), strict=True):
        tensor.copy_(result)


def _all_gather_coalesced(tensors: list[torch.Tensor], dim: int, groups: _Groups) -> list[torch.Tensor]:
    group = group_of(groups)
    results = []
    for tensor in tensors:
        own = tensor.contiguous()
        parts = [torch.empty_like(own) for _ in group.members]
        call = _named("all_gather", f"dim={dim}", groups)
        group.run(call, _gathering(parts, own), tensors=tensors)
        results.append(torch.stack(parts) if own.ndim == 0 else torch.cat(parts, dim))
    return results


def _gathering(parts: list[torch.Tensor], own: torch.Tensor) -> Callable[[Any], Any]:
    return lambda gloo: gloo.allgather([parts], [own])


def _broadcasting(whole: torch.Tensor, options: dist.BroadcastOptions) -> Callable[[Any], Any]:
    return lambda gloo: gloo.broadcast([whole], options)


def _all_gather(x: torch.Tensor, dim: int, groups: _Groups) -> torch.Tensor:
    (result,) = _all_gather_coalesced([x], dim, groups)
    return result


def _reduce_scatter_coalesced(
    tensors: list[torch.Tensor], reduce_type: str, scale: float, scatter_dim: int, shard_count: int, groups: _Groups
) -> list[torch.Tensor]:
    _require_parts(tensors, scatter_dim, shard_count, groups)
    index = group_of(groups).index
    reduced = _reduce("reduce_scatter", tensors, reduce_type, scale, groups)
    return [tensor.chunk(shard_count, scatter_dim)[index].clone() for tensor in reduced]


def _reduce_scatter(
    x: torch.Tensor, reduce_type: str, scale: float, scatter_dim: int, shard_count: int, groups: _Groups
) -> torch.Tensor:
    (result,) = _reduce_scatter_coalesced([x], reduce_type, scale, scatter_dim, shard_count, groups)
    return result


def _require_parts(tensors: Sequence[torch.Tensor], dim: int, count: int, groups: _Groups) -> None:
    if count != _size(groups):
        message = f"A tensor is to be divided into {count} parts for a group of {_size(groups)} ranks."
        raise ConfigError(message, hint="Pass the size of the group.", count=count, group_size=_size(groups))
    for tensor in tensors:
        if tensor.ndim == 0 or tensor.shape[dim] % count:
            message = f"Dimension {dim} of a tensor of shape {list(tensor.shape)} cannot be divided into {count} parts."
            raise ConfigError(message, hint="Pad the tensor.", shape=list(tensor.shape), count=count)


def _all_to_all(
    x: torch.Tensor, split_dimension: int, concat_dimension: int, count: int, groups: _Groups
) -> torch.Tensor:
    _require_parts([x], split_dimension, count, groups)
    group = group_of(groups)
    sent = torch.stack(x.chunk(count, split_dimension)).contiguous()
    received = torch.empty_like(sent)
    call = _named("all_to_all", f"{split_dimension}, {concat_dimension}", groups)
    group.run(call, lambda gloo: gloo.alltoall_base(received, sent, [], [], dist.AllToAllOptions()), tensors=[x])
    return torch.cat(received.unbind(), concat_dimension)


def _collective_permute(x: torch.Tensor, pairs: _Groups) -> torch.Tensor:
    everyone, own = link(), global_ordinal()
    for side, ranks in zip(("sends", "receives"), zip(*pairs, strict=True), strict=False):
        repeated = sorted({rank for rank in ranks if ranks.count(rank) > 1 or rank not in everyone.members})
        if repeated:
            message = f"Rank {repeated[0]} {side} more than once, or does not exist, in the pairs {pairs}."
            raise ConfigError(message, hint="Let each rank send once and receive once at most.", pairs=pairs)
    held = x.contiguous()
    result = torch.zeros_like(held)

    def exchange(gloo: Any) -> Any:
        works = [gloo.send([held], target, 0) for source, target in pairs if source == own != target]
        works += [gloo.recv([result], source, 0) for source, target in pairs if target == own != source]
        return _All(works)

    everyone.run(f"collective_permute({pairs})", exchange, tensors=[x])
    if [own, own] in pairs:
        result.copy_(held)
    return result


class _All:
    """Several pieces of work as one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def _broadcast_in_place(tensors: list[torch.Tensor], root: int, groups: _Groups) -> None:
    group = group_of(groups)
    if root not in group.members:
        message = f"Rank {root} has the values, but it is not in the group {list(group.members)}."
        raise ConfigError(message, hint="Pass a root of each group in a call of its own.", root=root)
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = group.members.index(root), 0
    for tensor in tensors:
        whole = tensor.contiguous()
        call = _named("collective_broadcast", f"root={root}", groups)
        group.run(call, _broadcasting(whole, options), tensors=tensors)
        if whole is not tensor:
            tensor.copy_(whole)


def _send(x: torch.Tensor, channel_id: int) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(x.detach(), file)
    send_bytes(f"channel {channel_id}", file.getvalue())
    return x.clone()


def _receive(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    received: torch.Tensor = torch.load(io.BytesIO(receive_bytes(f"channel {channel_id}")), weights_only=True)
    if (received.shape, received.dtype) != (output.shape, output.dtype):
        message = (
            f"Channel {channel_id} brings a tensor of {received.dtype} {list(received.shape)}, "
            f"not of {output.dtype} {list(output.shape)}."
        )
        raise ConfigError(message, hint="Pass recv a tensor like the one that is sent.", channel=channel_id)
    return received


def _like(x: torch.Tensor, *_: object) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _nothing(*_: object) -> None:
    pass


def _fake_gather(x: torch.Tensor, dim: int, groups: _Groups) -> torch.Tensor:
    shape = list(x.shape) or [1]
    shape[dim] *= _size(groups)
    return x.new_empty(shape)


def _fake_scatter(
    x: torch.Tensor, reduce_type: str, scale: float, dim: int, count: int, groups: _Groups
) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] //= count
    return x.new_empty(shape)


def _fake_all_to_all(x: torch.Tensor, split_dimension: int, concat_dimension: int, count: int, groups: _Groups) -> Any:
    shape = list(x.shape)
    shape[split_dimension] //= count
    shape[concat_dimension] *= count
    return x.new_empty(shape)


def _each(fake: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    return lambda tensors, *rest: [fake(tensor, *rest) for tensor in tensors]


ALL_REDUCE = define(
    "xla::all_reduce(Tensor x, str reduce_type, float scale, int[][] groups) -> Tensor", fake=_like, run=_all_reduce
)
ALL_REDUCE_IN_PLACE = define(
    "xla::all_reduce_(Tensor(a!)[] tensors, str reduce_type, float scale, int[][] groups) -> ()",
    fake=_nothing,
    run=_all_reduce_in_place,
)
ALL_GATHER = define("xla::all_gather(Tensor x, int dim, int[][] groups) -> Tensor", fake=_fake_gather, run=_all_gather)
ALL_GATHER_COALESCED = define(
    "xla::all_gather_coalesced(Tensor[] tensors, int dim, int[][] groups) -> Tensor[]",
    fake=_each(_fake_gather),
    run=_all_gather_coalesced,
)
_SCATTERED = "str reduce_type, float scale, int scatter_dim, int shard_count, int[][] groups"
REDUCE_SCATTER = define(
    f"xla::reduce_scatter(Tensor x, {_SCATTERED}) -> Tensor", fake=_fake_scatter, run=_reduce_scatter
)
REDUCE_SCATTER_COALESCED = define(
    f"xla::reduce_scatter_coalesced(Tensor[] tensors, {_SCATTERED}) -> Tensor[]",
    fake=_each(_fake_scatter),
    run=_reduce_scatter_coalesced,
)
ALL_TO_ALL = define(
    "xla::all_to_all(Tensor x, int split_dimension, int concat_dimension, int split_count, int[][] groups) -> Tensor",
    fake=_fake_all_to_all,
    run=_all_to_all,
)
COLLECTIVE_PERMUTE = define(
    "xla::collective_permute(Tensor x, int[][] pairs) -> Tensor", fake=_like, run=_collective_permute
)
BROADCAST_IN_PLACE = define(
    "xla::broadcast_(Tensor(a!)[] tensors, int root, int[][] groups) -> ()", fake=_nothing, run=_broadcast_in_place
)
SEND = define("xla::send(Tensor x, int channel_id) -> Tensor", fake=_like, run=_send)
RECEIVE = define("xla::recv(Tensor output, int channel_id) -> Tensor", fake=_like, run=_receive)
