"""How a decoder is called, as data: axes, padding, and limits of its inputs, and device-resident state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...engine import (
    ADAPTER_INDEX,
    SAMPLED,
    STATE_ROW,
    Input,
    OutputAxis,
    RoleSignature,
    Signature,
    StateSignature,
    is_of_layer,
)
from ...errors import ConfigError
from ...models import SLOTS, LayerState, counts_tokens, key_value_state
from ...options.configuration import DEFAULT_MAX_TOPK, NeuronConfig

_BATCH = OutputAxis(dim=0, axis="batch_size")
_ADAPTER = Input(name=ADAPTER_INDEX, dtype="int64", axes=("batch_size",), default=0)
_TOKENS = OutputAxis(dim=1, axis="num_tokens")

KEYS_AND_VALUES = (key_value_state(1, 1, 1),)
"""States of layers with a plain cache, in which sizes do not matter."""


def decoder_signature(
    model_config: PreTrainedConfig,
    layers: Iterable[LayerState],
    prompt_inputs: Iterable[Input] = (),
    *,
    takes_adapters: bool = False,
    is_paged: bool = False,
    outputs: Iterable[str] = ("logits",),
    step_outputs: Iterable[str] = (),
) -> Signature:
    """Return the signature of a decoder.

    Args:
        model_config: a transformers configuration.
        layers: what each layer keeps between calls.
        prompt_inputs: further inputs of prefill and score graphs.
        takes_adapters: every graph takes the adapter of each row, as its last input.
        is_paged: the cache is divided into blocks.
        outputs: names of the results.
        step_outputs: names of further results of decode graphs.
    """
    layers, names = list(layers), tuple(outputs)
    more: dict[str, tuple[OutputAxis, ...]] = {name: (_BATCH,) for name in step_outputs}
    if is_paged:
        return _paged_signature(model_config, layers, takes_adapters, names, more)
    vocabulary = model_config.get_text_config(decoder=True).vocab_size
    counts = Input(name="num_new_tokens", dtype="int64", axes=("batch_size",))
    tokens = (
        Input(name="input_ids", dtype="int64", axes=("batch_size", "num_tokens"), limit=vocabulary),
        Input(name="position_ids", dtype="int64", axes=("batch_size", "num_tokens")),
        *([counts] if counts_tokens(layers) else []),
    )
    prompt = (*tokens, *prompt_inputs)
    last = Input(name="last_index", dtype="int64", axes=("batch_size",))
    adapter = [_ADAPTER] * takes_adapters
    every = RoleSignature(inputs=(*tokens, *adapter), outputs={name: (_BATCH, _TOKENS) for name in names})
    one = _of_one_token(names)
    return Signature(
        roles={
            "prefill": RoleSignature(inputs=(*prompt, last, *adapter), outputs=one),
            "score": RoleSignature(inputs=(*prompt, *adapter), outputs=every.outputs),
            "extend": every,
            "decode": RoleSignature(inputs=every.inputs, outputs=one | more),
        },
        states={
            tensor.name: StateSignature(axes=("batch_size", *tensor.axes), is_fixed=tensor.is_fixed)
            for state in layers
            for tensor in state
        },
    )


def _paged_signature(
    model_config: PreTrainedConfig,
    layers: Sequence[LayerState],
    takes_adapters: bool,
    names: Iterable[str],
    more: dict[str, tuple[OutputAxis, ...]],
) -> Signature:
    """Return the signature of a decoder whose cache is divided into blocks, which tables assign to rows."""
    vocabulary = model_config.get_text_config(decoder=True).vocab_size
    step = (
        Input(name="input_ids", dtype="int64", axes=("batch_size", "num_tokens"), limit=vocabulary),
        Input(name="position_ids", dtype="int64", axes=("batch_size", "num_tokens")),
        Input(name="block_table", dtype="int64", axes=("batch_size", "num_row_blocks")),
    )
    counted = (*step, Input(name="num_new_tokens", dtype="int64", axes=("batch_size",)))
    # States that tokens change have a row for each row of a step; a chunk says which one it continues.
    changes = any(tensor.changes for state in layers for tensor in state)
    chunk = (*counted, *(Input(name=STATE_ROW, dtype="int64", axes=("batch_size",)),) * changes)
    last = Input(name="last_index", dtype="int64", axes=("batch_size",))
    adapter = [_ADAPTER] * takes_adapters
    every: dict[str, tuple[OutputAxis, ...]] = {name: (_BATCH, _TOKENS) for name in names}
    one = _of_one_token(names)
    return Signature(
        roles={
            "prefill": RoleSignature(inputs=(*chunk, last, *adapter), outputs=one),
            "score": RoleSignature(inputs=(*chunk, *adapter), outputs=every),
            "extend": RoleSignature(inputs=(*counted, *adapter), outputs=every),
            "decode": RoleSignature(inputs=(*(counted if changes else step), *adapter), outputs=one | more),
        },
        states={
            tensor.name: StateSignature(
                axes=(
                    "num_blocks" if tensor.has_slots else "batch_size",
                    *("block_size" if axis == SLOTS else axis for axis in tensor.axes),
                )
            )
            for state in layers
            for tensor in state
        },
    )


def _of_one_token(names: Iterable[str]) -> dict[str, tuple[OutputAxis, ...]]:
    """Axes of the results of prefill and decode graphs: hidden states of layers are those of every token."""
    return {name: (_BATCH, _TOKENS) if is_of_layer(name) else (_BATCH,) for name in names}


def require_topk(model_config: PreTrainedConfig, config: NeuronConfig) -> None:
    """Check that a vocabulary has as many tokens as a step shall return; the default is for every vocabulary."""
    number = config.max_topk or DEFAULT_MAX_TOPK
    vocab_size = facts_of(model_config.get_text_config(decoder=True)).vocab_size or number
    if number > max(vocab_size, DEFAULT_MAX_TOPK):
        message = f"max_topk={number} is more than the {vocab_size} tokens of the vocabulary."
        hint = f"Pass max_topk={DEFAULT_MAX_TOPK}, or another number of at most {vocab_size}."
        raise ConfigError(message, hint=hint, option="max_topk", value=number, vocab_size=vocab_size)


def sampled_outputs(config: NeuronConfig) -> tuple[str, ...]:
    """Return the names of the results that decode graphs of a configuration have behind the others."""
    return SAMPLED if config.on_device_sampling else ()


def with_tokens(results: object, max_topk: int) -> Any:
    """Return results of a decode step, the logits first, and those of `SAMPLED` behind them."""
    results = results if isinstance(results, tuple) else (results,)
    logits_B1V = results[0].float()
    top = logits_B1V.topk(min(max_topk, logits_B1V.shape[-1]), -1)
    return (*results, logits_B1V.argmax(-1, keepdim=True), top.values, top.indices)
