"""Training with the gradients of all ranks: `xm.reduce_gradients` and `xm.optimizer_step`.

loss.backward()
optimizer_step(optimizer)  # averages gradients, then steps
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..base import env
from . import graphs
from .collectives import REDUCE_SUM, Groups, all_reduce, buckets, collective_broadcast
from .ordinals import world_size


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Give every rank the parameters and buffers of rank 0.

    Args:
        model: the model.
    """
    collective_broadcast([*model.parameters(), *model.buffers()])
    graphs.sync()


def all_reduce_bucketized_gradients(
    gradients: Sequence[torch.Tensor], scale: float, groups: Groups, pin_layout: bool, bucket_cap_mb: int = 0
) -> None:
    """Sum gradients in place, several with each collective.

    Args:
        gradients: the gradients, in the order of their collectives.
        scale: factor of the sums.
        groups: lists of ranks; None: one group of all.
        pin_layout: as of `all_reduce`.
        bucket_cap_mb: MiB that one collective sums.
    """
    for bucket in buckets(gradients, bucket_cap_mb):
        all_reduce(REDUCE_SUM, bucket, scale, groups, pin_layout)


def reduce_gradients(optimizer: torch.optim.Optimizer, groups: Groups = None, pin_layout: bool = True) -> None:
    """Average the gradients of an optimizer's parameters over all ranks, in place.

    The sum of each group is divided by the number of all ranks. Gradients are summed from the last to the first, in
    buckets of ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB.

    Args:
        optimizer: the optimizer.
        groups: lists of ranks; None: one group of all.
        pin_layout: as of `all_reduce`.

    Raises:
        CollectiveError: ranks have gradients of other parameters, or one has ended.
    """
    if world_size() == 1:
        return
    gradients = gradients_of(optimizer)
    scale, cap_mb = 1.0 / world_size(), env.gradient_bucket_mb()
    if cap_mb:
        all_reduce_bucketized_gradients(gradients[::-1], scale, groups, pin_layout, cap_mb)
    else:
        all_reduce(REDUCE_SUM, gradients, scale, groups, pin_layout)


def gradients_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the gradients of an optimizer's parameters: `xm._fetch_gradients`.

    Args:
        optimizer: the optimizer.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: Groups = None,
    pin_layout: bool = True,
) -> Any:
    """Average gradients, and let the optimizer step.

    Args:
        optimizer: the optimizer.
        barrier: end the graph of the step too; a loader of `torch_xla.distributed.parallel_loader` does so.
        optimizer_args: arguments of its `step`.
        groups: as of `reduce_gradients`.
        pin_layout: as of `all_reduce`.

    Returns:
        What `step` returns.
    """
    reduce_gradients(optimizer, groups, pin_layout)
    loss = optimizer.step(**(optimizer_args or {}))
    if barrier:
        graphs.sync()
    return loss
