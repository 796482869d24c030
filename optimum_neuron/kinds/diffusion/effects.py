"""Options of an export on a pipeline: those without an effect are errors, or ignored as Optimum Neuron ignores them.

Sizes of pictures that are left open are the pipeline's own.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from ...base.upstream_rules import follows_upstream, tell_ignored
from ...errors import ConfigError
from ...sources.pipelines import DENOISERS, denoiser_name
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


def with_sizes(config: NeuronDiffusionConfig, stock: DiffusionPipeline) -> NeuronDiffusionConfig:
    """Return a configuration with the size of pictures that a pipeline makes by default, where it has none."""
    denoiser = getattr(stock, denoiser_name(stock) or "", None)
    of_model = getattr(getattr(denoiser, "config", None), "sample_size", None)
    sample_size = getattr(stock, "default_sample_size", None) or of_model or 64
    side = sample_size * getattr(stock, "vae_scale_factor", 1) if isinstance(sample_size, int) else 512
    return dataclasses.replace(config, height=config.height or side, width=config.width or side)


def size_multiple(stock: DiffusionPipeline) -> int:
    """Return the number that height and width of a pipeline's pictures are multiples of."""
    scale: Any = getattr(stock, "vae_spatial_compression_ratio", None) or getattr(stock, "vae_scale_factor", 1)
    return int(scale) * (2 if getattr(stock, "transformer", None) is not None else 1)
