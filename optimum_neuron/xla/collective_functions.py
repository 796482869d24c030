"""Collectives through which gradients flow: `torch_xla.core.functions`.

total = all_reduce("sum", activations)  # its gradient is all-reduced too
"""

from __future__ import annotations

import torch

from . import collectives
from .collectives import Groups
from .ordinals import global_ordinal, world_size


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, reduce_type: str, scale: float, groups: Groups
    ) -> torch.Tensor:
        ctx.reduce_type, ctx.scale, ctx.groups = reduce_type, scale, groups
        result = collectives.all_reduce(reduce_type, value, scale, groups)
        ctx.save_for_backward(value, result)
        return result

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None]:
        value, result = ctx.saved_tensors
        total = collectives.all_reduce("sum", gradient, ctx.scale, ctx.groups)
        if ctx.reduce_type in ("min", "max"):
            total = torch.where(value == result, total, torch.zeros_like(total))
        return total, None, None, None


def all_reduce(reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: Groups = None) -> torch.Tensor:
    """Reduce a tensor over ranks; in the backward pass gradients are summed over them.

    Args:
        reduce_type: "sum", "min", or "max".
        value: the tensor.
        scale: factor of the result.
        groups: lists of ranks; None: one group of all.

    Raises:
        CollectiveError: ranks differ, or one has ended.
        RuntimeError: the reduction has no gradient.
    """
    if reduce_type not in ("sum", "min", "max"):
        raise RuntimeError(f"all_reduce of {reduce_type!r} has no gradient. Use 'sum', 'min' or 'max'.")
    return _AllReduce.apply(value, reduce_type, scale, groups)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.dim, ctx.size = dim, value.shape[dim]
        return collectives.all_gather(value, dim)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = collectives.all_reduce("sum", gradient)
        return total.narrow(ctx.dim, global_ordinal() * ctx.size, ctx.size), None


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Join the tensors of all ranks along a dimension; in the backward pass each gets the sum of its gradients.

    Args:
        value: the tensor.
        dim: the dimension.

    Raises:
        CollectiveError: ranks differ, or one has ended.
    """
    return _AllGather.apply(value, dim)


class SyncBatchNorm(torch.nn.Module):
    """Batch norm with the statistics of all ranks' batches.

    Args:
        num_features: size of dimension 1.
        eps: added to the variance.
        momentum: weight of a batch in the running statistics.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = torch.nn.Parameter(torch.ones(num_features))
        self.bias = torch.nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Normalize a batch of shape [N, num_features, ...]."""
        if self.training:
            others = [dim for dim in range(batch.dim()) if dim != 1]
            sums = torch.stack([batch.mean(others), batch.square().mean(others)])
            mean, mean_square = all_reduce("sum", sums, scale=1 / world_size())
            variance = mean_square - mean.square()
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(variance, self.momentum)
        else:
            mean, variance = self.running_mean, self.running_var
        shape = [1, self.num_features, *([1] * (batch.dim() - 2))]
        normalized = (batch - mean.view(shape)) * torch.rsqrt(variance.view(shape) + self.eps)
        return normalized * self.weight.view(shape) + self.bias.view(shape)

    def extra_repr(self) -> str:
        """Return the arguments."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"
