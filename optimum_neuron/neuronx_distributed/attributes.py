"""Attributes of parameters which say how ranks divide them; gradients, checkpoints, and scripts read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..base.foreign import parameter_facts
from ..errors import ConfigError, ShapeError
from .parallel_state import TENSOR

DEFAULTS: Mapping[str, Any] = {
    "tensor_model_parallel": False,
    "partition_dim": -1,
    "partition_stride": 1,
    "num_partitions": 1,
    "rank_ordering": None,
}
"""Attributes of a parameter that ranks have alike."""


def set_tensor_model_parallel_attributes(
    tensor: torch.Tensor,
    is_parallel: bool,
    dim: int,
    stride: int,
    num_partitions: int = -1,
    rank_ordering: list[int] | None = None,
) -> None:
    """Say how ranks divide a tensor.

    Args:
        tensor: this rank's part.
        is_parallel: ranks have different parts.
        dim: the dimension that is divided.
        stride: how many pieces a rank has, each with pieces of the other ranks behind it.
        num_partitions: number of parts; -1: the degree of tensor parallelism.
        rank_ordering: which part the rank at each place has; None: that of its place.
    """
    if hasattr(tensor, "tensor_model_parallel"):
        raise ConfigError("The tensor has its attributes already.", hint="Call it once for each parameter.")
    count = TENSOR.size() if num_partitions == -1 else num_partitions
    if rank_ordering is not None and sorted(rank_ordering) != list(range(count)):
        message = f"rank_ordering is {rank_ordering}, and there are {count} parts."
        raise ConfigError(message, hint="Name each rank once.", rank_ordering=rank_ordering)
    values = (is_parallel, dim, stride, count, rank_ordering)
    for name, value in zip(DEFAULTS, values, strict=True):
        setattr(tensor, name, value)


def set_defaults_if_not_set_tensor_model_parallel_attributes(tensor: torch.Tensor) -> None:
    """Say that ranks have a tensor alike, unless something else was said.

    Args:
        tensor: the parameter.
    """
    for name, value in DEFAULTS.items():
        if not hasattr(tensor, name):
            setattr(tensor, name, value)


def copy_tensor_model_parallel_attributes(destination_tensor: torch.Tensor, source_tensor: torch.Tensor) -> None:
    """Copy the attributes of a parameter to another.

    Args:
        destination_tensor: gets them.
        source_tensor: has them.
    """
    for name in DEFAULTS:
        if hasattr(source_tensor, name):
            setattr(destination_tensor, name, getattr(source_tensor, name))


def is_divided(tensor: torch.Tensor) -> bool:
    """Whether ranks have different parts of a parameter."""
    return bool(parameter_facts(tensor).tensor_model_parallel)


def is_of_expert(tensor: torch.Tensor) -> bool:
    """Whether ranks of expert parallelism have a parameter of other experts."""
    return bool(parameter_facts(tensor).expert_model_parallel)


def set_experts(tensor: torch.Tensor, num_parts: int, rank: int) -> None:
    """Say that ranks of expert parallelism divide the first dimension.

    Args:
        tensor: this rank's part.
        num_parts: number of ranks.
        rank: this rank among them.
    """
    tensor.expert_model_parallel = True
    tensor.expert_parts = (num_parts, rank)


def part_of(whole: torch.Tensor, like: torch.Tensor, rank: int, name: str = "") -> torch.Tensor:
    """The part of a whole tensor that a rank of tensor parallelism has, by the attributes of `like`."""
    if is_of_expert(like):
        count, place = like.expert_parts
        whole = whole.chunk(count)[place]
    if not is_divided(like):
        return whole
    dim, stride, count = like.partition_dim, like.partition_stride, like.num_partitions
    place = (rank if like.rank_ordering is None else like.rank_ordering[rank]) % count
    own: list[torch.Tensor] = []
    for matrix in _matrices(whole, like, name):
        if matrix.shape[dim] % (count * stride):
            message = f"{count} ranks with {stride} pieces each cannot divide {list(matrix.shape)} {name}".rstrip()
            hint = "Use a length that their product divides, or pad the model."
            raise ShapeError(f"{message}.", hint=hint, shape=list(matrix.shape), dim=dim, ranks=count)
        own += matrix.chunk(count * stride, dim)[place::count]
    return torch.cat(own, dim).contiguous()


def set_fused(tensor: torch.Tensor, num_queries: int, num_keys: int) -> None:
    """Say that a tensor has rows of queries, keys, and values one after the other, of which ranks divide each.

    Args:
        tensor: this rank's part.
        num_queries: rows of queries, of all ranks.
        num_keys: rows of keys, and of values, of all ranks.
    """
    tensor.fused_qkv, tensor.head_dim = True, 1
    tensor.num_attention_heads, tensor.num_key_value_heads = num_queries, num_keys


def _matrices(whole: torch.Tensor, like: torch.Tensor, name: str) -> list[torch.Tensor]:
    """The tensors that are one after the other in a whole tensor, and of which ranks divide each."""
    facts = parameter_facts(like)
    if not facts.fused_qkv:
        return [whole]
    heads = (facts.num_attention_heads, facts.num_key_value_heads, facts.num_key_value_heads)
    sizes = [int(count or 0) * int(facts.head_dim or 0) for count in heads]
    if sum(sizes) != whole.shape[like.partition_dim]:
        message = f"Queries, keys, and values have {sizes} rows, and the whole {list(whole.shape)} {name}".rstrip()
        hint = "Pass the three one after the other, or set num_attention_heads, num_key_value_heads, and head_dim."
        raise ShapeError(f"{message}.", hint=hint, shape=list(whole.shape), rows=sizes)
    return list(whole.split(sizes, like.partition_dim))
