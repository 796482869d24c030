"""Changes between tensors that ranks have alike and tensors that they divide, each with its gradient.

| function | forward | backward |
| --- | --- | --- |
| `copy_to_tensor_model_parallel_region` | nothing | sum over ranks |
| `reduce_from_tensor_model_parallel_region` | sum over ranks | nothing |
| `scatter_to_tensor_model_parallel_region` | this rank's part of the last dimension | gather |
| `gather_from_tensor_model_parallel_region` | gather the last dimension | this rank's part |
| `scatter_to_sequence_parallel_region` | this rank's part of the sequence | gather |
| `gather_from_sequence_parallel_region` | gather the sequence | sum, and this rank's part |
| `reduce_scatter_to_sequence_parallel_region` | sum, and this rank's part | gather |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist

from ..errors import ConfigError, ShapeError
from .parallel_state import CONTEXT, EXPERT, TENSOR
from .simulated import is_simulated, rank_of, whole_world

Group: TypeAlias = dist.ProcessGroup | None
Change = Callable[[torch.Tensor], torch.Tensor]


class Mapping(torch.autograd.Function):
    """A change of a tensor, and the change of its gradient."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, ahead: Change, back: Change
    ) -> torch.Tensor:
        ctx.back = back
        return ahead(value)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


def group_or_tensor(group: Group) -> Group:
    """The group itself, or that of tensor parallelism; None: there is none, and this rank is alone."""
    return group if group is not None or not TENSOR.is_made() else TENSOR.group()


def group_or_expert(group: Group) -> Group:
    """The group itself, or that of expert parallelism; None: this rank has all experts."""
    return group if group is not None or not EXPERT.is_made() else EXPERT.group()


def size_of(group: Group) -> int:
    """Number of ranks of a group."""
    return 1 if group is None else dist.get_world_size(group)


def rank_in(group: Group) -> int:
    """Place of this rank in a group."""
    return 0 if group is None else dist.get_rank(group)


def same(value: torch.Tensor) -> torch.Tensor:
    """The tensor itself."""
    return value.view_as(value)


def reduce(value: torch.Tensor, group: Group, op: object = dist.ReduceOp.SUM) -> torch.Tensor:
    """The sum over ranks, as a new tensor."""
    if size_of(group) == 1:
        return value.view_as(value)
    if is_simulated(group):
        if op != dist.ReduceOp.SUM:
            message = f"A traced program sums over ranks; it has no {op}."
            raise ConfigError(message, hint="Gather the tensors, and reduce them.", op=str(op))
        return torch.ops.neuron.all_reduce(value, whole_world(group))
    total = value.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, op=op, group=group)
    return total


def gather(value: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """The tensors of all ranks, one after the other in a dimension."""
    size = size_of(group)
    if size == 1:
        return value.view_as(value)
    if is_simulated(group):
        return torch.ops.neuron.all_gather(value, dim % value.ndim, whole_world(group))
    value = value.contiguous()
    parts = value.new_empty(size, *value.shape)
    dist.all_gather_single(parts, value.unsqueeze(0), group=group)
    return torch.cat(parts.unbind(), dim=dim)


def split(value: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """This rank's part of a dimension."""
    size = size_of(group)
    if size == 1:
        return value.view_as(value)
    parts = equal_parts(value, dim, size)
    if is_simulated(group):
        return torch.stack(parts).index_select(0, rank_of(group).reshape(1))[0]
    return parts[rank_in(group)].clone(memory_format=torch.contiguous_format)


def reduce_scatter(value: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """This rank's part of the sum over ranks."""
    size = size_of(group)
    if size == 1:
        return value.view_as(value)
    parts = torch.stack(equal_parts(value, dim, size))
    if is_simulated(group):
        return torch.ops.neuron.reduce_scatter(value, dim % value.ndim, whole_world(group))
    part = parts.new_empty(1, *parts.shape[1:])
    dist.reduce_scatter_single(part, parts, group=group)
    return part[0]


def equal_parts(value: torch.Tensor, dim: int, count: int) -> tuple[torch.Tensor, ...]:
    """Parts of a dimension, which ranks can divide."""
    length = value.shape[dim]
    if length % count:
        message = f"{count} ranks cannot divide dimension {dim} of a tensor of shape {list(value.shape)}."
        hint = f"Pass a length that {count} divides."
        raise ShapeError(message, hint=hint, shape=list(value.shape), dim=dim, ranks=count)
    return value.chunk(count, dim)


def apply(value: torch.Tensor, ahead: Change, back: Change) -> torch.Tensor:
    """A change of a tensor, whose gradient another one changes."""
    result: torch.Tensor = Mapping.apply(value, ahead, back)
    return result


def copy_to_tensor_model_parallel_region(input_: torch.Tensor, process_group: Group = None) -> torch.Tensor:
    """Return the tensor; its gradient is summed over ranks.

    Args:
        input_: a tensor that ranks have alike.
        process_group: the ranks; None: those of tensor parallelism.
    """
    group = group_or_tensor(process_group)
    return apply(input_, same, lambda gradient: reduce(gradient, group))


def reduce_from_tensor_model_parallel_region(input_: torch.Tensor, process_group: Group = None) -> torch.Tensor:
    """Return the sum over ranks.

    Args:
        input_: a part of a sum.
        process_group: the ranks; None: those of tensor parallelism.
    """
    group = group_or_tensor(process_group)
    return apply(input_, lambda value: reduce(value, group), same)


def reduce_from_context_model_parallel_region(input_: torch.Tensor, process_group: Group = None) -> torch.Tensor:
    """Return the sum over the ranks of context parallelism.

    Args:
        input_: a part of a sum.
        process_group: the ranks; None: those of context parallelism.
    """
    return reduce_from_tensor_model_parallel_region(input_, CONTEXT.group() if process_group is None else process_group)


def scatter_to_tensor_model_parallel_region(input_: torch.Tensor, process_group: Group = None) -> torch.Tensor:
    """Return this rank's part of the last dimension.

    Args:
        input_: a tensor that ranks have alike.
        process_group: the ranks; None: those of tensor parallelism.
    """
    return scatter_to_sequence_parallel_region(input_, -1, process_group)


def gather_from_tensor_model_parallel_region(input_: torch.Tensor, process_group: Group = None) -> torch.Tensor:
    """Return the parts of all ranks, one after the other in the last dimension.

    Args:
        input_: this rank's part.
        process_group: the ranks; None: those of tensor parallelism.
    """
    return gather_from_tensor_model_parallel_region_with_dim(input_, -1, process_group)


def gather_from_tensor_model_parallel_region_with_dim(
    input_: torch.Tensor, gather_dim: int, process_group: Group = None
) -> torch.Tensor:
    """Return the parts of all ranks, one after the other.

    Args:
        input_: this rank's part.
        gather_dim: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
    """
    return gather_from_sequence_parallel_region(input_, gather_dim, False, process_group)


def reduce_scatter_to_tensor_model_parallel_region_with_dim(
    input_: torch.Tensor, partition_dim: int, process_group: Group = None
) -> torch.Tensor:
    """Return this rank's part of the sum over ranks.

    Args:
        input_: a part of a sum.
        partition_dim: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
    """
    return reduce_scatter_to_sequence_parallel_region(input_, partition_dim, process_group)


def scatter_to_sequence_parallel_region(
    input_: torch.Tensor, sequence_dimension: int = 0, process_group: Group = None
) -> torch.Tensor:
    """Return this rank's part of a sequence.

    Args:
        input_: a tensor that ranks have alike.
        sequence_dimension: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
    """
    group, dim = group_or_tensor(process_group), sequence_dimension
    return apply(input_, lambda value: split(value, dim, group), lambda gradient: gather(gradient, dim, group))


def gather_from_sequence_parallel_region(
    input_: torch.Tensor, sequence_dimension: int = 0, to_model_parallel: bool = True, process_group: Group = None
) -> torch.Tensor:
    """Return the whole sequence.

    Args:
        input_: this rank's part.
        sequence_dimension: the dimension.
        to_model_parallel: ranks compute different things with it, so its gradient is summed over them.
        process_group: the ranks; None: those of tensor parallelism.
    """
    group, dim = group_or_tensor(process_group), sequence_dimension
    back = reduce_scatter if to_model_parallel else split
    return apply(input_, lambda value: gather(value, dim, group), lambda gradient: back(gradient, dim, group))


def reduce_scatter_to_sequence_parallel_region(
    input_: torch.Tensor,
    sequence_dimension: int = 0,
    process_group: Group = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return this rank's part of the sum over ranks.

    Args:
        input_: a part of a sum.
        sequence_dimension: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
        dtype: dtype in which the gradient is gathered; None: its own.
    """
    group, dim = group_or_tensor(process_group), sequence_dimension
    return apply(
        input_,
        lambda value: reduce_scatter(value, dim, group),
        lambda gradient: gather(gradient if dtype is None else gradient.to(dtype), dim, group).to(input_.dtype),
    )


def scatter_to_process_group_spmd(
    input_: torch.Tensor, partition_dim: int, rank: torch.Tensor, process_group: Group = None
) -> torch.Tensor:
    """Return the part of a rank whose number is a tensor, so that all ranks have one program.

    Args:
        input_: a tensor that ranks have alike.
        partition_dim: the dimension.
        rank: the number, such as that of `SPMDRank`.
        process_group: the ranks; None: those of tensor parallelism.
    """
    group = group_or_tensor(process_group)
    length = equal_parts(input_, partition_dim, size_of(group))[0].shape[partition_dim]

    def ahead(value: torch.Tensor) -> torch.Tensor:
        places = torch.arange(length, device=value.device) + rank.reshape(()) * length
        return value.index_select(partition_dim, places)

    return apply(input_, ahead, lambda gradient: gather(gradient, partition_dim, group))
