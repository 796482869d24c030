"""Patches of text and image models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .base import Arguments, Patch, replaced_forward


class _Lengths:
    """Lengths that are only ever compared with the columns of the batch."""

    def __init__(self, num_rows: int, num_columns: int) -> None:
        self.num_rows, self.num_columns, self.device = num_rows, num_columns, torch.device("cpu")

    def size(self, _dim: int) -> int:
        return self.num_rows

    def max(self) -> _Lengths:
        return self

    def item(self) -> int:
        return self.num_columns


@contextlib.contextmanager
def _known_lengths(model: Any, arguments: Arguments) -> Iterator[None]:
    # The model below the head: heads do not all pass lengths on.
    base, original = model.base_model, model.base_model.forward

    def forward(input_ids: torch.Tensor, *args: Any, **arguments: Any) -> Any:
        return original(input_ids, *args, **{**arguments, "lengths": _Lengths(*input_ids.shape)})

    with replaced_forward(base, forward):
        yield


LENGTHS = Patch(
    reason="forward asserts that no length exceeds the columns, which reads a tensor's value",
    applies=lambda config, task: True,
    around=_known_lengths,
)


@contextlib.contextmanager
def _convolved_by_mask(model: nn.Module, arguments: Arguments) -> Iterator[None]:
    mask = arguments["attention_mask"]
    mask_BT1 = mask.view(-1, mask.shape[-1], 1)

    def masked(hidden: torch.Tensor) -> torch.Tensor:
        return hidden * mask_BT1.to(hidden.dtype)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "conv_out_layer"):
                before = module.register_forward_pre_hook(
                    lambda _, args, kwargs: ((masked(args[0]), *args[1:]), kwargs) if args else (args, kwargs),
                    with_kwargs=True,
                )
                after = module.conv_out_layer.register_forward_hook(lambda _m, _a, output: masked(output))
                stack.callback(before.remove)
                stack.callback(after.remove)
        yield


CONVOLUTION = Patch(
    reason="its convolutions read the tokens beside each token, padding too; padding is zero for them, as past an end",
    applies=lambda config, task: True,
    around=_convolved_by_mask,
)


@contextlib.contextmanager
def _embedded_by_mask(model: Any, arguments: Arguments) -> Iterator[None]:
    mask = arguments["attention_mask"]
    mask_BT1 = mask.view(-1, mask.shape[-1], 1)
    handle = model.get_input_embeddings().register_forward_hook(
        lambda _m, _a, output: output * mask_BT1.to(output.dtype)
    )
    try:
        yield
    finally:
        handle.remove()


TRIGRAM = Patch(
    reason="a token's embedding is joined with its neighbors', padding too; padding is zero there, as past an end",
    applies=lambda config, task: getattr(config, "trigram_input", False),
    around=_embedded_by_mask,
)


@contextlib.contextmanager
def _forgetful(model: nn.Module, _arguments: Arguments) -> Iterator[None]:
    caches = [module.attention_bias_cache for module in model.modules() if hasattr(module, "attention_bias_cache")]
    for cache in caches:
        cache.clear()
    try:
        yield
    finally:
        for cache in caches:
            cache.clear()


BIAS_CACHE = Patch(
    reason="it keeps tables of biases from call to call, which would keep what was traced",
    applies=lambda config, task: True,
    around=_forgetful,
)
