"""Keys and values in 8 bits: what a cache stores of a token, and what attention reads of it.

    int8    -127 to 127, and a float32 scale for each token and head: its largest number becomes 127
    fp8     float8 e4m3 without scales: numbers beyond 240 become 240
    fp8-static    the same behind a division by a scale for all keys of a layer and one for all values, which the
                  checkpoint has

Scales have the layout of keys and values of width 1, so whatever places those in slots places scales too. Keys of all
tokens share no range, as outliers of few tokens show, which int8 needs a scale for; e4m3 numbers have their own
exponents, and NxD Inference and vLLM cast to it with a scale of 1 as well.

Shape legend: B batch, K key heads, T tokens, H head width.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...base.core import Choice, KVCacheDtype, Rejected
from ...errors import ModelError
from ...weights import LIMITS, quantize_rows
from .states import LayerState

_SCALES = {"key_cache": "key_scale", "value_cache": "value_scale"}
CACHE_NAMES = (*_SCALES, *_SCALES.values())
"""Names of the states of keys and values in their order: the scales are there for int8."""

_DTYPES = {"int8": "int8", "fp8": "float8_e4m3fn", "fp8-static": "float8_e4m3fn"}
_WIDTHS = ("key_width", "value_width")

SCALE_NAMES = {"key_scale": "k_scale", "value_scale": "v_scale"}
"""Scales of a layer's keys and values that a checkpoint may have, by their names here."""

_ROOM = 2.0
"""Checkpoints divide by scales that make 448 of the largest number, the end of torch's e4m3. The chip's ends at 240."""


def stored_as(state: LayerState, dtype: KVCacheDtype) -> LayerState:
    """Return what a layer keeps if its keys and values are stored in a dtype: with scales behind them for int8."""
    if dtype == "auto":
        return state
    narrow = tuple(
        dataclasses.replace(tensor, dtype=_DTYPES[dtype]) if tensor.name in _SCALES else tensor for tensor in state
    )
    scales = tuple(
        dataclasses.replace(
            tensor,
            name=_SCALES[tensor.name],
            sizes=tuple(1 if axis in _WIDTHS else size for axis, size in zip(tensor.axes, tensor.sizes, strict=True)),
            axes=tuple("one" if axis in _WIDTHS else axis for axis in tensor.axes),
            dtype="float32",
        )
        for tensor in state
        if tensor.name in _SCALES and dtype == "int8"
    )
    return narrow[:2] + scales + narrow[2:]


def chip_scales(*scales: torch.Tensor) -> list[torch.Tensor]:
    """Return what divides keys and values here for the scales of a checkpoint: nothing is cut, nor rounded more."""
    return [scale.float() * _ROOM for scale in scales]


def to_store(
    dtype: torch.dtype, key_BKTH: torch.Tensor, value_BKTH: torch.Tensor, scales: Sequence[torch.Tensor] = ()
) -> list[torch.Tensor]:
    """Return what a cache of some dtype stores of new keys and values: themselves or 8-bit numbers, then scales.

    Both are divided by `scales`, if there are some, which are not stored.
    """
    if dtype == torch.int8:
        (keys, key_scale), (values, value_scale) = (quantize_rows(x, dtype) for x in (key_BKTH, value_BKTH))
        return [keys, values, key_scale, value_scale]
    if dtype == torch.float8_e4m3fn:
        limit, new = LIMITS["fp8"], [key_BKTH, value_BKTH]
        if scales:
            new = [x.float() / scale for x, scale in zip(new, scales, strict=True)]
        return [x.clamp(-limit, limit).to(dtype) for x in new]
    return [key_BKTH, value_BKTH]


def to_read(stored: Sequence[torch.Tensor], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys and values of what a cache stores; those of 8 bits in `dtype`."""
    keys, values, *scales = stored
    if scales:
        key_scale, value_scale = scales
        return (keys.float() * key_scale).to(dtype), (values.float() * value_scale).to(dtype)
    if keys.dtype == torch.float8_e4m3fn:
        return keys.to(dtype), values.to(dtype)
    return keys, values


def as_cached(
    dtype: torch.dtype, key: torch.Tensor, value: torch.Tensor, scales: Sequence[torch.Tensor] = ()
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return keys and values as they are read from a cache of some dtype, with the scales of a checkpoint or none."""
    scales = chip_scales(*scales)
    return to_read([*to_store(dtype, key, value, scales), *scales], key.dtype)


def take_scales(layers: Iterable[Any], weight_map: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Let layers divide keys and values by scales of a checkpoint; return where these come from.

    Args:
        layers: blocks of a decoder, whose attention is changed in place.
    """
    for layer in layers:
        if hasattr(layer.attention, "take_scales"):
            layer.attention.take_scales()
        elif any(tensor.has_slots for tensor in layer.attention.state):
            raise _unsupported("fp8-static", f"{type(layer.attention).__name__} has no scales of a checkpoint")
    owner = weight_map["layers.{}.attention.qkv.weight"][0].removesuffix(".weight").rpartition(".")[0]
    return {f"layers.{{}}.attention.{name}": (f"{owner}.{other}",) for name, other in SCALE_NAMES.items()}


def _unsupported(dtype: KVCacheDtype, obstacle: str) -> ModelError:
    message = f"kv_cache_dtype={dtype!r} is not supported for this model: {obstacle}."
    hint = "Remove kv_cache_dtype."
    if dtype == "fp8-static":
        hint = 'Pass kv_cache_dtype="int8", which has a scale for each token and needs none of the checkpoint.'
    return ModelError(message, hint=hint, option="kv_cache_dtype", value=dtype)


def cache_choice(states: Iterable[LayerState], dtype: KVCacheDtype, obstacle: str | None = None) -> Choice[str] | None:
    """Say what keys and values are stored in, and which states keep their dtype; None for that of the weights."""
    if dtype == "auto":
        return None
    if obstacle is not None:
        raise _unsupported(dtype, obstacle)
    states = list(states)
    num_layers = sum(any(tensor.name in _SCALES for tensor in state) for state in states)
    others = Counter(tensor.name for state in states for tensor in state if tensor.name not in CACHE_NAMES)
    if not num_layers:
        message = f"kv_cache_dtype={dtype!r} has no effect: no layer of this model keeps keys and values."
        hint = "Remove kv_cache_dtype."
        raise ModelError(message, hint=hint, option="kv_cache_dtype", value=dtype, states=sorted(others))
    scales = {
        "int8": "a float32 scale for each token and head",
        "fp8": "no scales: numbers beyond 240 become 240",
        "fp8-static": "two scales for each layer, from the checkpoint",
    }
    return Choice(
        value=dtype,
        reason=f"keys and values of {num_layers} of {len(states)} layers, {scales[dtype]}",
        rejected=tuple(
            Rejected(candidate=f"{name} of {number} layers", reason="every token changes it, so rounding would add up")
            for name, number in others.items()
            if name != "position_offset"
        ),
    )
