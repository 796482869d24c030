"""Tokens that ranks send to the ranks of their experts, and back, each with its gradient.

theirs = enter_expert_parallel_region(tokens_of_experts, scatter_gather=False)
results = exit_expert_parallel_region(self.experts(theirs), scatter_gather=False)
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import mappings


def _swapped(value: torch.Tensor, split_dim: int, join_dim: int, group: mappings.Group) -> torch.Tensor:
    """The parts that all ranks have for this one: part i of a dimension goes to rank i, and they are joined."""
    size = mappings.size_of(group)
    if size == 1:
        return value.view_as(value)
    parts = torch.stack(mappings.equal_parts(value, split_dim, size))
    found = torch.empty_like(parts)
    dist.all_to_all_single(found, parts, group=group)
    return torch.cat(found.unbind(), dim=join_dim)


def exchange(value: torch.Tensor, split_dim: int, join_dim: int, group: mappings.Group) -> torch.Tensor:
    """Return the parts that all ranks have for this one; gradients go back.

    Args:
        value: a tensor with a part for each rank.
        split_dim: dimension of the parts.
        join_dim: dimension in which they are joined.
        group: the ranks.
    """
    return mappings.apply(
        value,
        lambda one: _swapped(one, split_dim, join_dim, group),
        lambda one: _swapped(one, join_dim, split_dim, group),
    )


def enter_expert_parallel_region(x: torch.Tensor, scatter_gather: bool) -> torch.Tensor:
    """Send tokens to the ranks of their experts.

    Args:
        x: tokens of each expert [E, C, H].
        scatter_gather: let each rank of tensor parallelism send a part of the tokens, and gather them.

    Returns:
        The tokens of this rank's experts, from each rank of expert parallelism [E / ranks, ranks, C, H].
    """
    x = x.unsqueeze(1)
    x = mappings.scatter_to_sequence_parallel_region(x, 2) if scatter_gather else x
    x = exchange(x, 0, 1, mappings.group_or_expert(None))
    return mappings.gather_from_sequence_parallel_region(x, 2, False) if scatter_gather else x


def exit_expert_parallel_region(x: torch.Tensor, scatter_gather: bool) -> torch.Tensor:
    """Send results back to the ranks of their tokens.

    Args:
        x: results of this rank's experts [E / ranks, ranks, C, H].
        scatter_gather: as of `enter_expert_parallel_region`.

    Returns:
        Results of each expert [E, C, H].
    """
    x = mappings.scatter_to_sequence_parallel_region(x, 2) if scatter_gather else x
    x = exchange(x, 1, 0, mappings.group_or_expert(None)).squeeze(1)
    return mappings.gather_from_sequence_parallel_region(x, 1, False) if scatter_gather else x
