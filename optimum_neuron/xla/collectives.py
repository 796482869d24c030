"""Collectives by torch_xla's functions: `xm.all_reduce`, `xm.all_gather`, `xm.reduce_scatter`, and others.

Each is one operator of the recorded graph, with its groups as arguments, and runs when it is called: all members of a
group have to call it. Groups are lists of ranks, `[[0, 1], [2, 3]]`; None is one group of all. As in torch_xla, results
have no gradient.

    >>> all_reduce(REDUCE_SUM, torch.ones(2), scale=0.5)  # alone, a copy
    tensor([1., 1.])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from ..base import env
from ..base.wording import counted
from ..errors import ConfigError
from . import exchanges
from .ordinals import world_size

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

Groups = Sequence[Sequence[int]] | None
Tensors = TypeVar("Tensors", torch.Tensor, list[torch.Tensor])
_MIB = 1 << 20


@torch.no_grad()
def all_reduce(
    reduce_type: str, inputs: Tensors, scale: float = 1.0, groups: Groups = None, pin_layout: bool = True
) -> Tensors:
    """Reduce tensors over the ranks of a group.

    In a single process nothing happens, not even scaling, unless XLA_ALWAYS_ALLREDUCE=1.

    Args:
        reduce_type: "sum", "mul", "and", "or", "min", or "max".
        inputs: a tensor, or a list of tensors that are reduced in place.
        scale: factor of the results.
        groups: lists of ranks; None: one group of all.
        pin_layout: whether the compiler keeps the layout; tensors of the host have one layout.

    Returns:
        A new tensor, or the same list.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: no such reduction, or no such group.
    """
    exchanges.require_reduction(reduce_type)
    if world_size() == 1 and not env.always_all_reduces():
        return inputs.clone() if isinstance(inputs, torch.Tensor) else inputs
    if isinstance(inputs, torch.Tensor):
        return exchanges.ALL_REDUCE(inputs, reduce_type, scale, _listed(groups))
    if len(inputs):
        exchanges.ALL_REDUCE_IN_PLACE(list(inputs), reduce_type, scale, _listed(groups))
    return inputs


@torch.no_grad()
def all_gather(
    value: Tensors,
    dim: int = 0,
    groups: Groups = None,
    output: Tensors | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Tensors:
    """Join the tensors of all ranks of a group along a dimension.

    Args:
        value: a tensor, or a list of tensors that are gathered together.
        dim: the dimension.
        groups: lists of ranks of one length; None: one group of all.
        output: where results are written; None: new tensors.
        pin_layout: as of `all_reduce`; must be False for a list.
        channel_id: number that the compiler gives to the collective; the order of calls connects them here.
        use_global_device_ids: whether groups have numbers of devices instead of ranks; both are the same here.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: no such group, or arguments do not fit.
    """
    _require_equal(groups)
    if isinstance(value, torch.Tensor):
        return _put(output, exchanges.ALL_GATHER(value, dim, _listed(groups)))
    _require_unpinned("all_gather", pin_layout)
    gathered: list[torch.Tensor] = exchanges.ALL_GATHER_COALESCED(list(value), dim, _listed(groups))
    return _put(output, gathered)


@torch.no_grad()
def reduce_scatter(
    reduce_type: str,
    input: Tensors,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: Tensors | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Tensors:
    """Reduce tensors over the ranks of a group, and return each rank's part.

    Args:
        reduce_type: as of `all_reduce`.
        input: a tensor, or a list of tensors that are reduced together.
        scale: factor of the results.
        scatter_dim: dimension that is divided.
        shard_count: number of parts: the number of ranks in a group.
        groups: lists of ranks of one length; None: one group of all.
        output: where results are written; None: new tensors.
        pin_layout: as of `all_reduce`.
        channel_id: as of `all_gather`.
        use_global_device_ids: as of `all_gather`.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: no such reduction or group, or the dimension cannot be divided.
    """
    exchanges.require_reduction(reduce_type)
    _require_equal(groups)
    rest = (reduce_type, scale, scatter_dim, shard_count, _listed(groups))
    if isinstance(input, torch.Tensor):
        return _put(output, exchanges.REDUCE_SCATTER(input, *rest))
    reduced: list[torch.Tensor] = exchanges.REDUCE_SCATTER_COALESCED(list(input), *rest)
    return _put(output, reduced)


@torch.no_grad()
def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Groups = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Divide a tensor, send part i to rank i of the group, and join what comes.

    Args:
        value: the tensor.
        split_dimension: dimension that is divided.
        concat_dimension: dimension along which parts are joined.
        split_count: number of parts: the number of ranks in a group.
        groups: lists of ranks of one length; None: one group of all.
        pin_layout: as of `all_reduce`.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: no such group, or the dimension cannot be divided.
    """
    _require_equal(groups)
    return exchanges.ALL_TO_ALL(value, split_dimension, concat_dimension, split_count, _listed(groups))


@torch.no_grad()
def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """Send tensors from rank to rank.

    Args:
        value: the tensor that this rank may send.
        pairs: sending and receiving rank of each transfer.

    Returns:
        What this rank received; zeros if it is sent nothing.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: a rank sends or receives twice, or does not exist.
    """
    return exchanges.COLLECTIVE_PERMUTE(value, _listed(pairs))


@torch.no_grad()
def collective_broadcast(
    tensors: Sequence[torch.Tensor], root_ordinal: int = 0, groups: Groups = None, pin_layout: bool = True
) -> None:
    """Overwrite tensors with those of one rank.

    Args:
        tensors: the tensors.
        root_ordinal: rank that has the values, in this rank's group.
        groups: lists of ranks; None: one group of all.
        pin_layout: as of `all_reduce`.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        ConfigError: the root is not in the group.
    """
    if len(tensors) and world_size() > 1:
        exchanges.BROADCAST_IN_PLACE(list(tensors), root_ordinal, _listed(groups))


@torch.no_grad()
def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Send a tensor to the rank that receives on a channel.

    Args:
        value: the tensor.
        channel_id: number of the channel, which has one sender and one receiver.

    Returns:
        The tensor.
    """
    return exchanges.SEND(value, channel_id)


@torch.no_grad()
def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Return the next tensor of a channel, once it is sent.

    Args:
        output: a tensor of the same shape and dtype.
        channel_id: number of the channel.

    Raises:
        CollectiveError: the tensor has another shape or dtype, or was not sent in time.
    """
    return exchanges.RECEIVE(output, channel_id)


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """Gather tensors as `all_gather` does, several with each collective.

    Args:
        input_list: the tensors.
        dim: as of `all_gather`.
        groups: as of `all_gather`.
        output: as of `all_gather`.
        pin_layout: must be False.
        bucket_cap_mb: MiB that one collective gathers.

    Raises:
        ConfigError: arguments do not fit.
    """
    _require_unpinned("all_gather_bucketized", pin_layout)
    return _in_buckets(
        lambda bucket: all_gather(bucket, dim, groups, pin_layout=False), input_list, output, bucket_cap_mb
    )


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Groups = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """Reduce tensors and return parts as `reduce_scatter` does, several with each collective.

    Args:
        reduce_type: as of `all_reduce`.
        input_list: the tensors.
        scale: as of `reduce_scatter`.
        scatter_dim: as of `reduce_scatter`.
        shard_count: as of `reduce_scatter`.
        groups: as of `reduce_scatter`.
        output: as of `reduce_scatter`.
        pin_layout: as of `all_reduce`.
        bucket_cap_mb: MiB that one collective reduces.
    """

    def reduce(bucket: list[torch.Tensor]) -> list[torch.Tensor]:
        return reduce_scatter(reduce_type, bucket, scale, scatter_dim, shard_count, groups)

    return _in_buckets(reduce, input_list, output, bucket_cap_mb)


def buckets(tensors: Sequence[torch.Tensor], cap_mb: int) -> list[list[torch.Tensor]]:
    """Divide tensors, in their order, into lists of at most so many MiB; a larger tensor has its own.

    Args:
        tensors: the tensors.
        cap_mb: MiB of a list.
    """
    found: list[list[torch.Tensor]] = []
    filled = 0
    for tensor in tensors:
        if not found or filled + tensor.nbytes > cap_mb * _MIB:
            found.append([])
            filled = 0
        found[-1].append(tensor)
        filled += tensor.nbytes
    return found


def _listed(groups: Groups) -> list[list[int]]:
    return [list(group) for group in groups or ()]


def _require_equal(groups: Groups) -> None:
    sizes = sorted({len(group) for group in groups or ()})
    if len(sizes) > 1:
        message = f"Groups have {' and '.join(map(str, sizes))} ranks."
        raise ConfigError(message, hint="Let all groups have as many ranks.", sizes=sizes)


def _require_unpinned(name: str, pin_layout: bool) -> None:
    if pin_layout:
        message = f"{name} does not take a list of tensors with pin_layout=True."
        raise ConfigError(message, hint="Pass pin_layout=False.")


def _put(outputs: Tensors | None, results: Tensors) -> Tensors:
    if outputs is None:
        return results
    pairs: list[tuple[Any, Any]] = (
        [(outputs, results)] if isinstance(results, torch.Tensor) else list(_paired(outputs, results))
    )
    for output, result in pairs:
        output.copy_(result)
    return outputs


def _paired(outputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
    if isinstance(outputs, torch.Tensor) or len(outputs) != len(results):
        given = "one tensor" if isinstance(outputs, torch.Tensor) else counted(len(outputs), "tensor")
        message = f"`output` is {given}, but the input is {counted(len(results), 'tensor')}."
        raise ConfigError(message, hint="Pass a list with an output for each input.")
    return zip(outputs, results, strict=True)


def _in_buckets(
    run: Callable[[list[torch.Tensor]], list[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    outputs: list[torch.Tensor] | None,
    cap_mb: int,
) -> list[torch.Tensor]:
    return _put(outputs, [result for bucket in buckets(inputs, cap_mb) for result in run(bucket)])
