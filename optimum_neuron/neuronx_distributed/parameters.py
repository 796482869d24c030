"""Parameters that ranks divide: drawn whole, on the CPU, so that ranks with one seed have the weights of one process.

weight = parallel_parameter((4096, 1024), 0, default_init, group=TENSOR.group())
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import mappings
from .arithmetic import divide
from .attributes import is_divided, is_of_expert, part_of, set_experts, set_tensor_model_parallel_attributes

Initializer = Callable[[torch.Tensor], Any]


def default_init(whole: torch.Tensor) -> None:
    """Draw a whole weight as `torch.nn.Linear` does.

    Args:
        whole: the weight, which is changed.
    """
    nn.init.kaiming_uniform_(whole, a=math.sqrt(5))


def parallel_parameter(
    shape: tuple[int, ...],
    dim: int | None,
    init_method: Initializer,
    *,
    group: mappings.Group,
    stride: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
    rank_ordering: list[int] | None = None,
    keeps: nn.Module | None = None,
    expert_group: mappings.Group = None,
) -> nn.Parameter:
    """Draw a whole parameter, and return this rank's part of it.

    Args:
        shape: shape of the whole.
        dim: the dimension that ranks divide; None: none.
        init_method: draws the whole, in place.
        group: the ranks.
        stride: pieces of a rank.
        dtype: dtype of the part; the whole is drawn in float32.
        device: device of the part; None: torch's default device.
        rank_ordering: which part each rank has.
        keeps: the module that keeps the whole as `master_weight`.
        expert_group: ranks that divide the first dimension, which has experts.
    """
    size, rank = mappings.size_of(group), mappings.rank_in(group)
    place = torch.get_default_device() if device is None else torch.device(device)
    own = [divide(length, size * stride) * stride if axis == dim else length for axis, length in enumerate(shape)]
    num_parts = mappings.size_of(expert_group)
    own[0] = divide(own[0], num_parts)
    parameter = nn.Parameter(torch.empty(own, dtype=dtype, device=place), requires_grad=dtype.is_floating_point)
    if num_parts > 1:
        set_experts(parameter, num_parts, mappings.rank_in(expert_group))
    if dim is not None:
        set_tensor_model_parallel_attributes(parameter, True, dim, stride, size, rank_ordering)
    if place.type == "meta":
        return parameter
    whole = draw(parameter, init_method, rank)
    if keeps is not None:
        keeps.master_weight = whole
    return parameter


@torch.no_grad()
def draw(parameter: nn.Parameter, init_method: Initializer, rank: int) -> torch.Tensor:
    """Draw a whole parameter in float32 on the CPU, give a rank its part, and return the whole in its dtype.

    Args:
        parameter: the rank's part, whose attributes say how ranks divide it.
        init_method: draws the whole, in place.
        rank: the rank.
    """
    shape = list(parameter.shape)
    if is_divided(parameter):
        shape[parameter.partition_dim] *= parameter.num_partitions
    if is_of_expert(parameter):
        shape[0] *= parameter.expert_parts[0]
    whole = torch.empty(shape, dtype=torch.float32, device="cpu")
    init_method(whole)
    whole = whole.to(parameter.dtype)
    parameter.copy_(part_of(whole, parameter, rank))
    return whole


def initialize_parameter(
    param: nn.Parameter,
    partition_dim: int,
    num_partitions: int,
    init_method: Initializer,
    return_master_param: bool = False,
    *,
    param_dtype: torch.dtype = torch.float32,
    stride: int = 1,
) -> torch.Tensor | None:
    """Draw a whole parameter, and give a rank's parameter its part; NxD names it `_initialize_parameter_cpu`.

    Args:
        param: the part of this rank of tensor parallelism, which is changed.
        partition_dim: the dimension that ranks divide.
        num_partitions: number of parts.
        init_method: draws the whole, in place.
        return_master_param: return the whole.
        param_dtype: dtype in which it is returned.
        stride: pieces of a rank.
    """
    set_tensor_model_parallel_attributes(param, True, partition_dim, stride, num_partitions)
    whole = draw(param, init_method, mappings.rank_in(mappings.group_or_tensor(None)))
    return whole.to(param_dtype) if return_master_param else None
