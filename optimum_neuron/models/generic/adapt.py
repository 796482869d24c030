"""What some transformers decoders need so that positions are an input: forward hooks, and one function of ALiBi.

Most decoders take `position_ids` and masks of any shape. A few count tokens in their cache (Bart and its kin), cut a
local window by the length of the cache (GPT-Neo), or build ALiBi biases from a mask of two dimensions (Bloom, Falcon).
A token's slot is its position here, so each of them has one right answer that does not depend on a count.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ...base.foreign import module_facts
from ...base.model_facts import facts_of
from ...upstream.cache_argument import CACHE
from ...upstream.contract import replaced
from ...upstream.modeling_files import ALIBI, GPT_NEO_ATTENTION
from .replacements import real_rotation, tuned_temperature


@contextlib.contextmanager
def at_positions(
    model: nn.Module, positions_BT: torch.Tensor, window_mask: Callable[[int], torch.Tensor]
) -> Iterator[None]:
    """Run a decoder of transformers with its tokens at given positions.

    `window_mask` makes the mask of a layer that sees so many tokens, as the model takes it.
    """
    handles = []
    for module in position_embeddings(model):
        handles.append(module.register_forward_pre_hook(_calling_with(position_ids=positions_BT), with_kwargs=True))
        handles.append(module.register_forward_hook(lambda _, __, out: out.reshape(*positions_BT.shape, -1)))
    for module, window in local_layers(model):
        mask = window_mask(window)
        handles.append(module.register_forward_pre_hook(_calling_with(attention_mask=mask), with_kwargs=True))
    try:
        with _alibi_of_slots(model), real_rotation(model), tuned_temperature(model, positions_BT):
            yield
    finally:
        for handle in handles:
            handle.remove()


def position_embeddings(model: nn.Module) -> list[nn.Module]:
    """Position embeddings of a model whose `forward` takes no positions."""
    if "position_ids" in inspect.signature(model.forward).parameters:
        return []
    names = {f"{CACHE}_length", "position_ids"}
    return [module for module in model.modules() if names <= inspect.signature(module.forward).parameters.keys()]


def local_layers(model: nn.Module) -> list[tuple[nn.Module, int]]:
    """Attention layers that cut a window of their own out of the cache, with the tokens that it holds (GPT-Neo)."""
    window = facts_of(model.config).window_size
    return [
        (module, window)
        for module in model.modules()
        if window is not None and module_facts(module).attention_type == "local" and hasattr(module, "attention")
    ]


def open_own_masks(model: nn.Module) -> None:
    """Let GPT-Neo's layers see everything by themselves: their own masks end at the last slot, not at the query."""
    for module in model.modules():
        if GPT_NEO_ATTENTION.matches(module):
            module.bias = torch.ones_like(module.bias)


def _calling_with(**tensors: torch.Tensor) -> Callable[..., Any]:
    """A pre-hook that calls a module with other keywords."""
    return lambda _module, arguments, options: (arguments, options | tensors)


@contextlib.contextmanager
def _alibi_of_slots(model: nn.Module) -> Iterator[None]:
    """Let `build_alibi_tensor` of the model's file take a mask of four dimensions: the bias of a slot is its index."""
    module = sys.modules[type(model).__module__]
    original = getattr(module, ALIBI.name, None)
    if original is None:
        yield
        return

    def build_alibi_tensor(mask: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        slots = torch.ones(mask.shape[0], mask.shape[-1], dtype=torch.int64)
        return original(slots, *arguments, **options)

    with replaced(module, {ALIBI.name: build_alibi_tensor}):
        yield
