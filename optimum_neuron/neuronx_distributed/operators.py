"""`topk` and `argmax` of a tensor whose ranks have a part each, such as logits of a vocabulary that they divide.

    values, tokens = topk(logits, k=5, dim=1, gather_dim=1)

Each rank finds its own candidates, and only these are gathered.
"""

from __future__ import annotations

import torch

from .mappings import Group, gather, group_or_tensor, rank_in, size_of
from .simulated import is_simulated, rank_of


def topk(
    tensor: torch.Tensor,
    k: int,
    dim: int,
    gather_dim: int,
    process_group: Group = None,
    stages: int = 1,
    rank_id: torch.Tensor | None = None,
    use_topk_rotated_kernel: bool = False,
    lnc: int = 2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest values of the tensor of all ranks, and their places in it.

    Args:
        tensor: this rank's part.
        k: number of values.
        dim: the dimension in which they are searched.
        gather_dim: the dimension that ranks divide.
        process_group: the ranks; None: those of tensor parallelism.
        stages: steps of the exchange; there is one, which has the same result.
        rank_id: number of this rank, for several stages; it is known.
        use_topk_rotated_kernel: which kernel; the result is the same.
        lnc: physical cores of a core, for that kernel.
    """
    group, ndim = group_or_tensor(process_group), tensor.ndim
    dim, gather_dim = dim % ndim, gather_dim % ndim
    if size_of(group) == 1:
        return torch.topk(tensor, k, dim)
    num = min(k, tensor.shape[dim]) if dim == gather_dim else k
    values, places = torch.topk(tensor, num, dim)
    values, places = _gathered(values, places, tensor.shape[dim], dim, gather_dim, group)
    if dim != gather_dim:
        return values, places
    values, order = torch.topk(values, k, dim)
    return values, places.gather(dim, order)


def argmax(
    tensor: torch.Tensor,
    dim: int,
    gather_dim: int,
    keepdim: bool = False,
    process_group: Group = None,
    disable_argmax_kernel: bool = False,
) -> torch.Tensor:
    """Return the place of the largest value of the tensor of all ranks.

    Args:
        tensor: this rank's part.
        dim: the dimension in which it is searched.
        gather_dim: the dimension that ranks divide.
        keepdim: keep the dimension, with one element.
        process_group: the ranks; None: those of tensor parallelism.
        disable_argmax_kernel: which kernel; the result is the same.
    """
    group, ndim = group_or_tensor(process_group), tensor.ndim
    dim, gather_dim = dim % ndim, gather_dim % ndim
    if size_of(group) == 1:
        return tensor.argmax(dim, keepdim)
    values, places = tensor.max(dim, keepdim=True)
    values, places = _gathered(values, places, tensor.shape[dim], dim, gather_dim, group)
    if dim == gather_dim:
        places = places.gather(dim, values.argmax(dim, keepdim=True))
    return places if keepdim else places.squeeze(dim)


def _gathered(
    values: torch.Tensor, places: torch.Tensor, length: int, dim: int, gather_dim: int, group: Group
) -> tuple[torch.Tensor, torch.Tensor]:
    """The candidates of all ranks, with their places in the whole tensor."""
    if dim == gather_dim:
        places = places + _rank(group) * length
    return gather(values, gather_dim, group), gather(places, gather_dim, group)


def _rank(group: Group) -> torch.Tensor | int:
    """The number of this rank, or the one that a traced program finds."""
    return rank_of(group) if group is not None and is_simulated(group) else rank_in(group)
