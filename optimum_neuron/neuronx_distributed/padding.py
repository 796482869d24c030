"""Models with more heads than they need, so that ranks can divide the heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ..errors import NotSupportedError
from ..tracing import get_platform_target
from .arithmetic import get_padding_length
from .attributes import copy_tensor_model_parallel_attributes
from .expert_layers import ExpertLinear
from .layers import ColumnParallelLinear, RowParallelLinear
from .platforms import hardware

Hook = Callable[[nn.Module, float], Any]


def get_number_of_extra_heads(n_head: int, tp_degree: int) -> int:
    """Return how many heads to add so that ranks can divide them.

    Args:
        n_head: number of heads.
        tp_degree: degree of tensor parallelism.
    """
    return get_padding_length(n_head, tp_degree)


def pad_model(
    model: nn.Module,
    tp_degree: int,
    n_heads: int,
    wrapped_classes: Sequence[type[nn.Module]] = (),
    pad_hook_fn: Hook | None = None,
) -> nn.Module:
    """Add zeros to the parallel layers of a model, as if it had a number of heads that ranks can divide.

    Args:
        model: the model, which is changed.
        tp_degree: degree of tensor parallelism.
        n_heads: number of heads of the model.
        wrapped_classes: classes whose layers are padded; none: all.
        pad_hook_fn: called with each padded module and the ratio of its sizes after and before.
    """
    ratio = (n_heads + get_number_of_extra_heads(n_heads, tp_degree)) / n_heads
    _pad(model, ratio, tuple(wrapped_classes), not wrapped_classes, pad_hook_fn)
    return model


def _pad(
    module: nn.Module, ratio: float, classes: tuple[type[nn.Module], ...], is_inside: bool, hook: Hook | None
) -> None:
    is_inside = is_inside or isinstance(module, classes)
    for child in module.children():
        _pad(child, ratio, classes, is_inside, hook)
    if not is_inside or isinstance(module, ExpertLinear):  # experts have no heads
        return
    if hook is not None:
        hook(module, ratio)
    if isinstance(module, ColumnParallelLinear):
        extra = int(module.weight.shape[0] * ratio) - module.weight.shape[0]
        module.weight = _padded(module.weight, (0, 0, 0, extra))
        if module.bias is not None:
            module.bias = _padded(module.bias, (0, extra))
    elif isinstance(module, RowParallelLinear):
        extra = int(module.weight.shape[1] * ratio) - module.weight.shape[1]
        module.weight = _padded(module.weight, (0, extra))


def _padded(parameter: nn.Parameter, sides: tuple[int, ...]) -> nn.Parameter:
    padded = nn.Parameter(F.pad(parameter.detach(), sides), requires_grad=parameter.requires_grad)
    copy_tensor_model_parallel_attributes(padded, parameter)
    return padded


def generate_padding_mask(
    num_heads: int,
    num_heads_with_pad: int,
    num_kv_heads: int,
    tp_degree: int,
    tp_rank: int,
    hardware_type: hardware | None = None,
) -> torch.Tensor:
    """Return which heads of a rank are the model's own, as booleans: each copy of a KV head serves the next heads.

    Args:
        num_heads: number of heads of queries, without padding.
        num_heads_with_pad: with padding.
        num_kv_heads: number of heads of keys and values, which ranks have copies of.
        tp_degree: degree of tensor parallelism.
        tp_rank: the rank.
        hardware_type: where ranks with the same KV head are: neighbors on Trn2, the KV heads repeated on Trn1; None:
            as on this platform.

    Raises:
        NotSupportedError: another platform.
    """
    platform = hardware(get_platform_target()) if hardware_type is None else hardware_type
    per_rank, kv_per_rank = num_heads_with_pad // tp_degree, 1
    if platform is hardware.TRN1:
        copy = tp_rank // num_kv_heads
    elif platform is hardware.TRN2:
        copies = max(tp_degree // num_kv_heads, 1)
        copy, kv_per_rank = tp_rank % copies, num_kv_heads * copies // tp_degree
    else:
        hint = "Pass hardware.TRN1 or hardware.TRN2."
        raise NotSupportedError(f"Unexpected hardware_type {platform!r}.", hint=hint, hardware_type=str(platform))
    return torch.arange(per_rank) + copy * per_rank < num_heads // num_kv_heads * kv_per_rank
