"""Checks of the arguments of `transformers_neuronx` against a model's configuration, before a compile."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PretrainedConfig

from ..base.model_facts import facts_of
from ..errors import ConfigError

LIMITS = ("max_position_embeddings", "n_positions")
"""Fields of configurations that limit positions."""


def position(cache_ids: torch.Tensor | None) -> int:
    """Return the column that a call begins at."""
    if cache_ids is None:
        return 0
    ids = torch.as_tensor(cache_ids)
    if ids.ndim > 1:
        raise ConfigError(
            f"cache_ids has {ids.ndim} axes: positions for each row belong to continuous batching.",
            hint="Pass the columns [tokens], with start_ids for padding on the left; or use generate_batch.",
            option="cache_ids",
            shape=list(ids.shape),
        )
    return int(ids.reshape(-1)[0])


def check_unroll(options: dict[str, Any], config: PretrainedConfig) -> None:
    """Check that numbers of layers for one program divide the layers."""
    num_layers = config.get_text_config(decoder=True).num_hidden_layers
    for name in ("unroll", "context_unroll"):
        value = options.get(name)
        if value is not None and (not isinstance(value, int) or value < 1 or num_layers % value):
            raise ConfigError(
                f"{name}={value!r} does not divide num_layers={num_layers}.",
                hint=f"Pass a divisor of {num_layers}, or leave it out: programs here have all layers.",
                option=name,
                value=value,
                num_layers=num_layers,
            )


def with_positions(config: PretrainedConfig, n_positions: int | Sequence[int]) -> PretrainedConfig:
    """Return the configuration with a limit of so many positions, where rotary embeddings have none of their own."""
    length = n_positions if isinstance(n_positions, int) else max(n_positions)
    rope = facts_of(config).rope_parameters
    is_plain = isinstance(rope, dict) and rope.get("rope_type", "default") == "default"
    if not is_plain or length <= (facts_of(config).max_position_embeddings or length):
        return config
    changed = copy.deepcopy(config)
    changed.max_position_embeddings = length
    return changed


def length_of(options: dict[str, Any], config: PretrainedConfig, is_named: bool) -> Any:
    """Return `n_positions`; the default is at most the model's own limit."""
    if is_named:
        return options["n_positions"]
    text = config.get_text_config(decoder=True)
    limits = [limit for name in LIMITS if isinstance(limit := getattr(text, name, None), int)]
    return min([options["n_positions"], *limits])
