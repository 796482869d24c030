"""Exchanges of tensors without a gradient, for the autograd functions of scripts.

part = split_along_dim(hidden, 0)  # this rank's rows
"""

from __future__ import annotations

import torch

from ..errors import NotSupportedError
from . import mappings

_SUM = "sum"


def split_along_dim(input_: torch.Tensor, partition_dim: int, process_group: mappings.Group = None) -> torch.Tensor:
    """Return this rank's part of a dimension.

    Args:
        input_: a tensor that ranks have alike.
        partition_dim: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
    """
    return mappings.split(input_, partition_dim, mappings.group_or_tensor(process_group))


def split_along_first_dim(input_: torch.Tensor, process_group: mappings.Group = None) -> torch.Tensor:
    """Return this rank's part of the first dimension, see `split_along_dim`."""
    return split_along_dim(input_, 0, process_group)


def split_along_last_dim(input_: torch.Tensor, process_group: mappings.Group = None) -> torch.Tensor:
    """Return this rank's part of the last dimension, see `split_along_dim`."""
    return split_along_dim(input_, -1, process_group)


def gather_along_dim(
    x: torch.Tensor, partition_dim: int, process_group: mappings.Group = None, tile_cc: bool = False
) -> torch.Tensor:
    """Return the parts of all ranks, one after the other.

    Args:
        x: this rank's part.
        partition_dim: the dimension.
        process_group: the ranks; None: those of tensor parallelism.
        tile_cc: not used: how hardware divides the exchange.
    """
    return mappings.gather(x, partition_dim, mappings.group_or_tensor(process_group))


def gather_along_first_dim(x: torch.Tensor, process_group: mappings.Group = None) -> torch.Tensor:
    """Return the parts of all ranks in the first dimension, see `gather_along_dim`."""
    return gather_along_dim(x, 0, process_group)


def gather_along_last_dim(x: torch.Tensor, process_group: mappings.Group = None) -> torch.Tensor:
    """Return the parts of all ranks in the last dimension, see `gather_along_dim`."""
    return gather_along_dim(x, -1, process_group)


def reduce_scatter_along_dim(
    x: torch.Tensor,
    partition_dim: int,
    computation: str = _SUM,
    process_group: mappings.Group = None,
    tile_cc: bool = False,
) -> torch.Tensor:
    """Return this rank's part of the sum over ranks.

    Args:
        x: a part of a sum.
        partition_dim: the dimension.
        computation: "sum", which is `xm.REDUCE_SUM`.
        process_group: the ranks; None: those of tensor parallelism.
        tile_cc: not used: how hardware divides the exchange.
    """
    if computation != _SUM:
        message = f"Ranks cannot divide the result of {computation!r}."
        raise NotSupportedError(message, hint="Pass xm.REDUCE_SUM.", computation=computation)
    return mappings.reduce_scatter(x, partition_dim, mappings.group_or_tensor(process_group))


def reduce_scatter_along_first_dim(
    x: torch.Tensor, computation: str = _SUM, process_group: mappings.Group = None
) -> torch.Tensor:
    """Return this rank's part of the sum in the first dimension, see `reduce_scatter_along_dim`."""
    return reduce_scatter_along_dim(x, 0, computation, process_group)


def reduce_scatter_along_last_dim(
    x: torch.Tensor, computation: str = _SUM, process_group: mappings.Group = None
) -> torch.Tensor:
    """Return this rank's part of the sum in the last dimension, see `reduce_scatter_along_dim`."""
    return reduce_scatter_along_dim(x, -1, computation, process_group)
