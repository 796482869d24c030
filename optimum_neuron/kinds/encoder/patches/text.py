"""Patches of text and image models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import Seq2SeqSequenceClassifierOutput

from ....base.model_facts import facts_of
from ....base.transformers_types import PreTrainedModel
from ....upstream.cache_argument import CACHE
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


def _known_lengths(model: PreTrainedModel, arguments: Arguments) -> AbstractContextManager[None]:
    # The model below the head: heads do not all pass lengths on.
    base, original = model.base_model, model.base_model.forward

    def forward(input_ids: torch.Tensor, *args: object, **arguments: object) -> Any:
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

    def after(_module: object, _args: object, output: torch.Tensor) -> torch.Tensor:
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
    applies=lambda config, task: bool(facts_of(config).trigram_input),
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


def _classified(
    model: PreTrainedModel, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **options: object
) -> Any:
    """Result of a model that classifies a text by the last end token behind its decoder; NaN if there is none."""
    if hasattr(model, "_shift_right"):
        options["decoder_input_ids"] = model._shift_right(input_ids)
    outputs = model.base_model(input_ids, attention_mask=attention_mask, **options)
    num_rows, num_columns = input_ids.shape
    is_end_BT = input_ids == model.config.eos_token_id
    last_B = torch.where(is_end_BT, torch.arange(num_columns), 0).amax(1)
    logits_BL = model.classification_head(outputs[0][torch.arange(num_rows), last_B])
    logits_BL = torch.where(is_end_BT.any(1, keepdim=True), logits_BL, torch.nan)
    others = {name: value for name, value in outputs.items() if name not in ("last_hidden_state", CACHE)}
    return Seq2SeqSequenceClassifierOutput(logits=logits_BL, **others)


def _by_last_end(model: PreTrainedModel, _arguments: Arguments) -> AbstractContextManager[None]:
    if not hasattr(model, "classification_head"):
        return contextlib.nullcontext()
    return replaced(model, {"forward": functools.partial(_classified, model)})


LAST_END = Patch(
    reason="it gathers all end tokens, whose number depends on values, and takes the last one of each row",
    applies=lambda config, task: task == "text-classification" and bool(facts_of(config).is_encoder_decoder),
    around=_by_last_end,
)
