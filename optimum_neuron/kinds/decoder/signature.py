"""How graphs call a decoder: axes, padding, and limits of the inputs, device-resident states, and captures of calls."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...compiler import Captured, Recapture, Role, capture, part_of
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
from ...models import SLOTS, Decoder, Family, LayerState, RowAdapters, counts_tokens, key_value_state
from ...options.configuration import DEFAULT_MAX_TOPK, NeuronConfig
from ..base import MODEL

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


class Entry(nn.Module):
    """A decoder called the way one graph calls it."""

    def __init__(
        self,
        decoder: nn.Module,
        *,
        num_slots: int | None,
        last_only: bool,
        counts_tokens: bool = False,
        adapters: RowAdapters | None = None,
        max_topk: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.adapters, self.max_topk = decoder, adapters, max_topk
        self.num_slots, self.last_only, self.counts_tokens = num_slots, last_only, counts_tokens
        self.adds_all = False

    def forward(self, input_ids_BT: torch.Tensor, positions_BT: torch.Tensor, *rest: object) -> Any:
        """Logits of the last, of all tokens, or of both; the last argument is the list of states."""
        *inputs, states = rest
        rows: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.adapters is not None:
            rows = self.adapters.chosen(self.model, inputs.pop(), input_ids_BT.shape[1])
        options: dict[str, Any] = {"num_new_B": inputs.pop(0)} if self.counts_tokens else {}
        options["last_index_B"] = inputs.pop() if self.last_only else None
        options |= {"adds_all": True} if self.adds_all else {}
        options |= self.prompt_options(input_ids_BT, inputs)
        with rows:
            results = self.model(input_ids_BT, positions_BT, states, num_slots=self.num_slots, **options)
        return results if self.max_topk is None else with_tokens(results, self.max_topk)

    def prompt_options(self, input_ids_BT: torch.Tensor, inputs: list[torch.Tensor]) -> dict[str, Any]:
        """Keywords that further inputs of prompts become; here there are none."""
        return {}


def graph_layers(family: Family) -> dict[str, str]:
    """Return the layers whose results graphs return too, by the name of the result."""
    return {name: f"{MODEL}.{path}" for name, path in family.layer_results.items()}


def known_kinds(decoder: nn.Module, adapters: RowAdapters | None) -> dict[str, tuple[int, ...]]:
    """Return the equal layers of a family's decoder as `capture` takes them; adapters may differ by layer."""
    kinds = decoder.kinds if isinstance(decoder, Decoder) and adapters is None else None
    return {} if kinds is None else {f"{MODEL}.layers": kinds}


def capture_entry(entry: Entry, shorten: bool, **options: Any) -> Captured:
    """Capture a decoder the way one graph calls it."""
    # Further inputs of a prompt may be added behind some layers.
    kinds = known_kinds(entry.model, entry.adapters) if type(entry) is Entry else {}
    return capture(entry, shorten=shorten, kinds=kinds, **options)


class _Prompts:
    """Graphs of prompts of one length, of which one run of the model is captured."""

    def __init__(self, prefill: functools.partial[Captured]) -> None:
        self._prefill, self._outputs = prefill, prefill.keywords["outputs"]
        self._captured: dict[bool, Captured] = {}

    def capture(self, shorten: bool, *, name: str, role: Role) -> Captured:
        if shorten not in self._captured:
            outputs = tuple(f"{part}.{output}" for part in ("prefill", "score") for output in self._outputs)
            self._captured[shorten] = self._prefill(shorten, name=name, role=role, outputs=outputs)
        return part_of(
            self._captured[shorten],
            name=name,
            role=role,
            outputs={output: f"{role}.{output}" for output in self._outputs},
            without=() if role == "prefill" else ("last_index",),
        )


def prompt_captures(prefill: functools.partial[Captured], score: functools.partial[Captured]) -> list[Recapture]:
    """Return the captures of prompts with logits of the last and of all tokens, given those of each alone.

    They differ behind the last layer only, so a decoder that returns both is captured once for both.
    """
    entry = prefill.args[0]
    if not isinstance(entry.model, Decoder):
        return [prefill, score]
    entry.adds_all, prompts = True, _Prompts(prefill)
    return [
        functools.partial(prompts.capture, name=one.keywords["name"], role=one.keywords["role"])
        for one in (prefill, score)
    ]
