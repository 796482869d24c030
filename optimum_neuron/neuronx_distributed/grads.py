"""Gradients over ranks: sums of data, sequence, and context parallelism, and the norm of what ranks divide.

A parameter that ranks have alike counts once in the norm, one that ranks divide with all of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
import torch.distributed as dist

from ..base.foreign import parameter_facts
from ..errors import ConfigError
from . import mappings
from .attributes import is_divided, is_of_expert
from .parallel_state import CONTEXT, DATA, EXPERT, EXPERT_DATA, PIPELINE, TENSOR, ZERO1

_BUCKET_BYTES = 512 * 2**20
"""Most bytes of gradients in one collective."""

Parameters: TypeAlias = Iterable[torch.Tensor] | torch.Tensor


def get_grad_norm(
    parameters: Parameters, norm_type: float = 2, extra_groups: Sequence[mappings.Group] = ()
) -> torch.Tensor:
    """Return the norm of the gradients of all ranks' parameters.

    Args:
        parameters: this rank's parameters.
        norm_type: which norm; inf: the largest absolute value.
        extra_groups: further ranks with other parts of the parameters.
    """
    held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    trained = [one for one in held if one.grad is not None and not parameter_facts(one).shared]
    device = held[0].device if held else torch.device("cpu")
    is_largest = math.isinf(norm_type)
    op = dist.ReduceOp.MAX if is_largest else dist.ReduceOp.SUM
    total, of_experts = torch.zeros(1, device=device), torch.zeros(1, device=device)
    tp_size = TENSOR.size() if TENSOR.is_made() else 1
    for one in trained:
        gradient = one.grad.detach().float()
        if is_largest:
            total = torch.maximum(total, gradient.abs().max())
            continue
        share = torch.linalg.vector_norm(gradient, norm_type) ** norm_type
        share = share if is_divided(one) else share / tp_size
        if is_of_expert(one):
            of_experts += share
        else:
            total += share
    if EXPERT.is_made() and EXPERT.size() > 1:
        of_experts = mappings.reduce(of_experts, EXPERT.group(), op)
    total = total + of_experts
    groups = [axis.group() for axis in (TENSOR, PIPELINE) if axis.is_made()]
    for group in (*groups, *extra_groups):
        total = mappings.reduce(total, group, op)
    return total if is_largest else total ** (1.0 / norm_type)


def clip_grad_norm(parameters: Parameters, max_norm: float, norm_type: float = 2) -> torch.Tensor:
    """Scale gradients so that their norm over all ranks is at most `max_norm`, and return the norm before.

    Args:
        parameters: this rank's parameters.
        max_norm: the largest norm.
        norm_type: which norm.
    """
    held = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    norm = get_grad_norm(held, norm_type)
    return clip_grads_with_norm(held, norm, max_norm)


@torch.no_grad()
def clip_grads_with_norm(parameters: Sequence[torch.Tensor], total_norm: torch.Tensor, max_norm: float) -> torch.Tensor:
    """Scale gradients that have a norm so that it is at most `max_norm`, and return the norm before.

    Args:
        parameters: this rank's parameters.
        total_norm: the norm of the gradients of all ranks.
        max_norm: the largest norm.
    """
    if not parameters:
        raise ConfigError("There are no parameters to clip.", hint="Pass the parameters of the model.")
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for one in parameters:
        if one.grad is not None:
            one.grad.mul_(factor.to(one.grad.dtype))
    return total_norm


@torch.no_grad()
def bucket_allreduce_gradients(grads_list: Sequence[torch.Tensor], reduce_over_ep_group: bool = False) -> None:
    """Average gradients over the ranks of data and context parallelism, several in one collective.

    Args:
        grads_list: gradients, in the order of the parameters.
        reduce_over_ep_group: sum them over the ranks of expert parallelism instead, after the average.
    """
    if not DATA.is_made():
        return
    group, size = (EXPERT.group(), 1) if reduce_over_ep_group else (EXPERT_DATA.group(), ZERO1.size())
    for bucket in _buckets(list(reversed(grads_list)), _BUCKET_BYTES):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket]) / size
        if mappings.size_of(group) > 1:
            dist.all_reduce(flat, group=group)
        for gradient, values in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
            gradient.copy_(values.view_as(gradient))


def _buckets(gradients: list[torch.Tensor], cap: int) -> list[list[torch.Tensor]]:
    """Gradients of one dtype and at most so many bytes, or one larger gradient."""
    buckets: dict[torch.dtype, list[list[torch.Tensor]]] = {}
    filled: dict[torch.dtype, int] = {}
    for gradient in gradients:
        size, dtype = gradient.numel() * gradient.element_size(), gradient.dtype
        if dtype not in buckets or filled[dtype] + size > cap:
            buckets.setdefault(dtype, []).append([])
            filled[dtype] = 0
        buckets[dtype][-1].append(gradient)
        filled[dtype] += size
    return [bucket for lists in buckets.values() for bucket in lists]


def gradients_of(optimizer: torch.optim.Optimizer) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters of an optimizer that have a gradient, each with it."""
    found = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad if parameter.grad is not None else parameter_facts(parameter).main_grad
            if gradient is not None:
                found.append((parameter, gradient))
    return found


@torch.no_grad()
def allreduce_sequence_parallel_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Sum gradients of parameters which ranks have alike and use on parts of a sequence.

    Args:
        optimizer: has the parameters; those with the attribute `sequence_parallel_enabled` are meant.
    """
    for parameter, gradient in gradients_of(optimizer):
        if parameter_facts(parameter).sequence_parallel_enabled and TENSOR.size() > 1:
            dist.all_reduce(gradient, group=TENSOR.group())


@torch.no_grad()
def allreduce_context_parallel_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Average gradients over the ranks of context parallelism, but those of experts that ranks divide.

    Args:
        optimizer: has the parameters.
    """
    if not CONTEXT.is_made() or CONTEXT.size() == 1:
        return
    for parameter, gradient in gradients_of(optimizer):
        if EXPERT.size() > 1 and is_of_expert(parameter):
            continue
        gradient.div_(CONTEXT.size())
        dist.all_reduce(gradient, group=CONTEXT.group())
