"""Numbers of ranks in groups, and parts of tensors by rank: `utils.distributed` of NxD Inference, for custom layers.

It does not know models. A rank may be a tensor: a program that all ranks run computes with it.

>>> import torch
>>> get_dp_rank(torch.tensor(5), tp_degree=2).item()
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..neuronx_distributed import mappings

if TYPE_CHECKING:
    from .inference_config import InferenceConfig

_MESH = 8
"""Cores of a group in the mesh of 8 groups."""


def get_tp_group(config: InferenceConfig) -> Any:
    """Return the group of tensor parallelism for layers of a model; None outside of custom models.

    Args:
        config: an `InferenceConfig`. Only those of custom models have `neuron_config.use_draft_group`; a draft is on
            the cores of its target.
    """
    return mappings.group_or_tensor(None) if hasattr(config.neuron_config, "use_draft_group") else None


def get_cp_rank(global_rank: torch.Tensor, tp_degree: int) -> torch.Tensor:
    """Return the number of a rank's group, int32, where neighbors are a group.

    Args:
        global_rank: the rank.
        tp_degree: ranks of a group.
    """
    return torch.div(global_rank, tp_degree, rounding_mode="floor").to(torch.int32)


get_dp_rank_spmd = get_cp_rank


def get_dp_rank(global_rank: torch.Tensor, tp_degree: int, dp_degree: int | None = None) -> torch.Tensor:
    """Return the number of a rank's group, int32: in the mesh of 8 groups of 8, else as `get_cp_rank` does.

    Args:
        global_rank: the rank.
        tp_degree: ranks of a group.
        dp_degree: groups.
    """
    if tp_degree == dp_degree == _MESH:
        return get_rank_8_by_8(global_rank)
    return get_cp_rank(global_rank, tp_degree)


def get_rank_8_by_8(global_rank: torch.Tensor, switch_cc: bool = False) -> torch.Tensor:
    """Return the number of a rank's group, int32, in the mesh of 8 groups of 8.

    Two groups share 16 ranks: the first has 4 at each end, and the second the 8 between.

    Args:
        global_rank: the rank.
        switch_cc: neighbors are a group.
    """
    if switch_cc:
        return get_cp_rank(global_rank, _MESH)
    place = global_rank % (2 * _MESH)
    is_between = (place >= _MESH // 2) & (place < _MESH // 2 + _MESH)
    return (2 * get_cp_rank(global_rank, 2 * _MESH) + is_between).to(torch.int32)


def get_kv_head_group_number(global_rank: torch.Tensor, tp_degree: int) -> torch.Tensor:
    """Return the place of a rank in its group, int32.

    Args:
        global_rank: the rank.
        tp_degree: ranks of a group.
    """
    return (global_rank % tp_degree).to(torch.int32)


def split_along_dim(
    tensor: torch.Tensor | None, dim: int, rank: int | torch.Tensor, num_partitions: int
) -> torch.Tensor | None:
    """Return a rank's part of a tensor, or None of None.

    Args:
        tensor: the whole.
        dim: dimension that is divided.
        rank: which part.
        num_partitions: parts, all of the same size; what is left over belongs to none.
    """
    if tensor is None:
        return None
    size = tensor.shape[dim] // num_partitions
    index = torch.arange(size, device=tensor.device) + torch.as_tensor(rank, device=tensor.device).reshape(-1) * size
    return tensor.index_select(dim, index)


def split_along_dim0_kernel_wrapper(
    tensor: torch.Tensor, rank: torch.Tensor, num_partitions: int, lnc: int = 1
) -> torch.Tensor | None:
    """Return a rank's part of a tensor along its first dimension.

    Args:
        tensor: the whole.
        rank: which part, a tensor with one number.
        num_partitions: parts.
        lnc: physical cores of a core, which does not change the result.
    """
    return split_along_dim(tensor, 0, rank, num_partitions)
