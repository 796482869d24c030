"""Layers of low rank beside frozen ones; which of the two ranks divide follows from the frozen layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..errors import ModelError
from .expert_layers import ExpertLinear
from .layers import ColumnParallelLinear, RowParallelLinear, default_init
from .lora_config import LoraConfig
from .qkv_linear import GQAQKVColumnParallelLinear


class LoraLayer(nn.Module):
    """A frozen layer, and the two layers whose product is added to what it returns.

    Args:
        base_layer: the frozen layer.
        pair: the two layers.
        config: the options.
    """

    def __init__(self, base_layer: nn.Module, pair: tuple[nn.Module, nn.Module], config: LoraConfig) -> None:
        super().__init__()
        self.base_layer, self.scaling = base_layer, config.scaling
        self.lora_A, self.lora_B = pair
        self.lora_dropout = nn.Dropout(config.lora_dropout) if config.lora_dropout else nn.Identity()
        self.lora_rank, self.merged = config.lora_rank, False
        own = next(base_layer.parameters())
        for one in pair:
            one.to(device=own.device, dtype=own.dtype)
        if own.is_meta:
            return
        with torch.no_grad():
            _draw(self.lora_A, config)
            for parameter in self.lora_B.parameters():
                parameter.zero_()
            if isinstance(base_layer, nn.Embedding):  # as peft: ids start at zero, so that no id is lost
                self.lora_A.weight.zero_()
                nn.init.normal_(self.lora_B.weight)

    def get_base_layer(self) -> nn.Module:
        """Return the frozen layer."""
        return self.base_layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the frozen layer returns, and the product."""
        output = self.base_layer(*args, **kwargs)
        if self.merged:
            return output
        first = args[0] if args else next(iter(kwargs.values()))
        added = self.lora_B(self.lora_A(first if first.dtype == torch.long else self.lora_dropout(first)))
        if not isinstance(output, tuple):
            return output + added * self.scaling
        if not isinstance(added, tuple):  # skip_bias_add: the output and its bias
            return (output[0] + added * self.scaling, *output[1:])
        return tuple(own + more * self.scaling for own, more in zip(output, added, strict=True))

    @torch.no_grad()
    def _add(self, sign: int) -> None:
        a, b = self.lora_A.weight, [one for _, one in self.lora_B.named_parameters()]
        base = self.base_layer
        weights = [one for name, one in base.named_parameters() if name.startswith("weight")]
        for weight, factor in zip(weights, b, strict=True):
            if isinstance(base, nn.Embedding):
                delta = a @ factor.T
            elif isinstance(base, nn.Conv2d):
                delta = (factor.flatten(1) @ a.flatten(1)).view_as(weight)
            else:
                delta = factor @ a
            weight += (sign * self.scaling * delta).to(weight.dtype)

    def merge(self) -> None:
        """Add the product to the weight."""
        if not self.merged:
            self._add(1)
            self.merged = True

    def unmerge(self) -> None:
        """Subtract the product from the weight."""
        if self.merged:
            self._add(-1)
            self.merged = False


def _draw(layer: nn.Module, config: LoraConfig) -> None:
    gaussian = config.init_lora_weights == "gaussian"
    init: Callable[[torch.Tensor], Any] = (
        (lambda whole: nn.init.normal_(whole, std=1 / config.lora_rank)) if gaussian else default_init
    )
    if isinstance(layer, RowParallelLinear):
        layer.init_method = init
        layer.init_weight_cpu()
    else:
        init(layer.weight)


def _of_linear(base: nn.Linear, rank: int) -> tuple[nn.Module, nn.Module]:
    return nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)


def _of_embedding(base: nn.Embedding, rank: int) -> tuple[nn.Module, nn.Module]:
    return nn.Embedding(base.num_embeddings, rank), nn.Linear(rank, base.embedding_dim, bias=False)


def _of_convolution(base: nn.Conv2d, rank: int) -> tuple[nn.Module, nn.Module]:
    if base.groups != 1:
        message = f"A convolution with {base.groups} groups has no LoRA."
        raise ModelError(message, hint="Leave it out of target_modules.", groups=base.groups)
    shape = {"stride": base.stride, "padding": base.padding, "dilation": base.dilation}
    first = nn.Conv2d(base.in_channels, rank, base.kernel_size, **shape, padding_mode=base.padding_mode, bias=False)
    return first, nn.Conv2d(rank, base.out_channels, 1, bias=False)


def _of_column(base: ColumnParallelLinear, rank: int) -> tuple[nn.Module, nn.Module]:
    kept = ("gather_output", "sequence_parallel_enabled", "sequence_dimension", "reduce_dtype", "rank_ordering")
    options = {name: getattr(base, name) for name in kept}
    group = base.tensor_model_parallel_group
    last = ColumnParallelLinear(
        rank, base.output_size, bias=False, stride=base.stride, tensor_model_parallel_group=group, **options
    )
    first = nn.Linear(base.weight.shape[1], rank, bias=False)
    first.weight.sequence_parallel_enabled = base.sequence_parallel_enabled
    return first, last


def _of_row(base: RowParallelLinear, rank: int) -> tuple[nn.Module, nn.Module]:
    if not base.reduce_output:
        message = "A row-parallel layer with reduce_output=False has no LoRA."
        raise ModelError(message, hint="Leave it out of target_modules.")
    kept = ("input_is_parallel", "sequence_parallel_enabled", "sequence_dimension", "reduce_dtype", "rank_ordering")
    options = {name: getattr(base, name) for name in kept}
    group = base.tensor_model_parallel_group
    first = RowParallelLinear(
        base.input_size, rank, bias=False, stride=base.stride, tensor_model_parallel_group=group, **options
    )
    last = nn.Linear(rank, base.weight.shape[0], bias=False)
    last.weight.sequence_parallel_enabled = base.sequence_parallel_enabled
    return first, last


def _of_qkv(base: GQAQKVColumnParallelLinear, rank: int) -> tuple[nn.Module, nn.Module]:
    kept = ("gather_output", "sequence_parallel_enabled", "kv_size_multiplier", "fuse_qkv", "reduce_dtype")
    options = {name: getattr(base, name) for name in kept}
    first = nn.Linear(base.input_size, rank, bias=False)
    first.weight.sequence_parallel_enabled = base.sequence_parallel_enabled
    return first, GQAQKVColumnParallelLinear(rank, base.output_sizes, bias=False, **options)


_KINDS: tuple[tuple[type[nn.Module], Callable[..., tuple[nn.Module, nn.Module]]], ...] = (
    (ColumnParallelLinear, _of_column),
    (RowParallelLinear, _of_row),
    (GQAQKVColumnParallelLinear, _of_qkv),
    (nn.Linear, _of_linear),
    (nn.Embedding, _of_embedding),
    (nn.Conv2d, _of_convolution),
)


def lora_layer(name: str, base: nn.Module, config: LoraConfig) -> LoraLayer:
    """Return a layer with LoRA.

    Args:
        name: its name, for the error.
        base: the layer.
        config: the options.
    """
    for kind, pair_of in _KINDS:
        if isinstance(base, kind) and not isinstance(base, ExpertLinear):
            return LoraLayer(base, pair_of(base, config.lora_rank), config)
    message = f"{name} is a {type(base).__name__}, which has no LoRA."
    hint = "Name linear layers, convolutions, embeddings, or layers that ranks divide in target_modules."
    raise ModelError(message, hint=hint, module=name, kind=type(base).__name__)
