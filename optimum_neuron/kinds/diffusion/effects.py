"""Options of an export that would have no effect on a pipeline: errors, or ignored as Optimum Neuron ignores them."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from ...base.upstream_rules import follows_upstream, tell_ignored
from ...errors import ConfigError
from .configuration import NeuronDiffusionConfig


def with_effects(config: NeuronDiffusionConfig, stock: Any) -> NeuronDiffusionConfig:
    """Return the options that a pipeline has; the rules of Optimum Neuron ignore a `sequence_length` without effect."""
    name, mode = type(stock).__name__, config.data_parallel_mode
    if mode in ("unet", "transformer") and getattr(stock, mode, None) is None:
        own = next((part for part in ("unet", "transformer") if getattr(stock, part, None) is not None), "none")
        message = f"data_parallel_mode={mode!r} has no effect: a {name} has no {mode}."
        raise ConfigError(message, hint=f"Pass {own!r}.", option="data_parallel_mode", value=mode)
    if config.sequence_length is None or "max_sequence_length" in inspect.signature(type(stock).__call__).parameters:
        return config
    length = getattr(getattr(stock, "tokenizer", None), "model_max_length", None)
    if length == config.sequence_length:
        return config
    shown = f"sequence_length={config.sequence_length}"
    has = "no prompt" if length is None else f"prompts of {length} tokens only"
    if follows_upstream():
        tell_ignored(shown, f"a {name} has {has}")
        return dataclasses.replace(config, sequence_length=None)
    message = f"{shown} has no effect: a {name} has {has}."
    raise ConfigError(message, hint="Remove sequence_length.", option="sequence_length", length=length)
