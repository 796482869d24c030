"""Patches of text and image models."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from ....upstream.contract import replaced
from .base import Arguments, Patch


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


def _known_lengths(model: Any, arguments: Arguments) -> AbstractContextManager[None]:
    # The model below the head: heads do not all pass lengths on.
    base, original = model.base_model, model.base_model.forward

    def forward(input_ids: torch.Tensor, *args: Any, **arguments: Any) -> Any:
        return original(input_ids, *args, **{**arguments, "lengths": _Lengths(*input_ids.shape)})

    return replaced(base, {"forward": forward})


LENGTHS = Patch(
    reason="forward asserts that no length exceeds the columns, which reads a tensor's value", around=_known_lengths
)


def _masked(hidden_BTD: torch.Tensor, arguments: Arguments) -> torch.Tensor:
    """Hidden states with zeros where tokens are padding."""
    mask = arguments["attention_mask"]
    return hidden_BTD * mask.view(-1, mask.shape[-1], 1).to(hidden_BTD.dtype)


@contextlib.contextmanager
def _convolved_by_mask(model: nn.Module, arguments: Arguments) -> Iterator[None]:
    def before(_module: Any, args: Any, kwargs: Any) -> Any:
        return ((_masked(args[0], arguments), *args[1:]) if args else args), kwargs

    def after(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return _masked(output, arguments)

    with contextlib.ExitStack() as stack:
        for module in model.modules():
            if hasattr(module, "conv_out_layer"):
                stack.enter_context(module.register_forward_pre_hook(before, with_kwargs=True))
                stack.enter_context(module.conv_out_layer.register_forward_hook(after))
        yield


CONVOLUTION = Patch(
    reason="its convolutions read the tokens beside each token, padding too; padding is zero for them, as past an end",
    around=_convolved_by_mask,
)


TRIGRAM = Patch(
    reason="a token's embedding is joined with its neighbors', padding too; padding is zero there, as past an end",
    applies=lambda config, task: getattr(config, "trigram_input", False),
    around=lambda model, arguments: model.get_input_embeddings().register_forward_hook(
        lambda _module, _args, output: _masked(output, arguments)
    ),
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
    reason="it keeps tables of biases from call to call, which would keep what was traced", around=_forgetful
)


@contextlib.contextmanager
def _tables_as_weights(model: nn.Module, _arguments: Arguments) -> Iterator[None]:
    owners = [module for module in model.modules() if "relative_coords_table" in module._buffers]
    tables = [module.relative_coords_table for module in owners]
    try:
        for owner in owners:
            dtype = next(owner.continuous_position_bias_mlp.parameters()).dtype
            owner.relative_coords_table = owner.relative_coords_table.to(dtype)
        yield
    finally:
        for owner, table in zip(owners, tables, strict=True):
            owner.relative_coords_table = table


COORDINATES = Patch(
    reason="it casts its table of coordinates to the dtype of its weights when it is built, which is float32 here",
    around=_tables_as_weights,
)
