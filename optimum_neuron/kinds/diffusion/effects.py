"""Options of an export on a pipeline: those without an effect are errors, or ignored as Optimum Neuron ignores them.

Sizes of pictures that are left open are the pipeline's own.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING

from ...base.foreign import module_facts, pipeline_facts, tokenizer_facts
from ...errors import ConfigError
from ...options.peer_attributes import follows_upstream, tell_ignored
from ...sources.pipelines import DENOISERS, denoiser_name, denoiser_of
from .configuration import NeuronDiffusionConfig

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


def with_effects(config: NeuronDiffusionConfig, stock: DiffusionPipeline) -> NeuronDiffusionConfig:
    """Return the options that a pipeline has; the rules of Optimum Neuron ignore a `sequence_length` without effect."""
    name, mode = type(stock).__name__, config.data_parallel_mode
    if mode in DENOISERS and getattr(stock, mode, None) is None:
        own = denoiser_name(stock) or "none"
        message = f"data_parallel_mode={mode!r} has no effect: a {name} has no {mode}."
        raise ConfigError(message, hint=f"Pass {own!r}.", option="data_parallel_mode", value=mode)
    if config.sequence_length is None or "max_sequence_length" in inspect.signature(type(stock).__call__).parameters:
        return config
    length = tokenizer_facts(pipeline_facts(stock).tokenizer).model_max_length
    if length == config.sequence_length:
        return config
    shown = f"sequence_length={config.sequence_length}"
    has = "no prompt" if length is None else f"prompts of {length} tokens only"
    if follows_upstream():
        tell_ignored(shown, f"a {name} has {has}")
        return dataclasses.replace(config, sequence_length=None)
    message = f"{shown} has no effect: a {name} has {has}."
    raise ConfigError(message, hint="Remove sequence_length.", option="sequence_length", length=length)


def with_sizes(config: NeuronDiffusionConfig, stock: DiffusionPipeline) -> NeuronDiffusionConfig:
    """Return a configuration with the size of pictures that a pipeline makes by default, where it has none."""
    facts, settings = pipeline_facts(stock), module_facts(denoiser_of(stock)).config or {}
    sample_size = facts.default_sample_size or settings.get("sample_size") or 64
    side = sample_size * (facts.vae_scale_factor or 1) if isinstance(sample_size, int) else 512
    return dataclasses.replace(config, height=config.height or side, width=config.width or side)


def size_multiple(stock: DiffusionPipeline) -> int:
    """Return the number that height and width of a pipeline's pictures are multiples of."""
    facts = pipeline_facts(stock)
    scale = facts.vae_spatial_compression_ratio or facts.vae_scale_factor or 1
    return int(scale) * (2 if facts.transformer is not None else 1)
