"""Checks of the arguments of `transformers_neuronx` against a model's configuration, before a compile."""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import PretrainedConfig

from ..errors import ConfigError, ShapeError
from ..options.sizes import is_count, limit_error
from ..options.value_types import COUNT, check_types
from .config import NeuronConfig
from .positions import row_numbers, whole_numbers

logger = logging.getLogger(__name__)

_TYPES = {"amp": str, "init_n_active_tokens": COUNT, "reorder_cache": bool, "tag": str}
LIMITS = ("max_position_embeddings", "n_positions")
"""Fields of configurations that limit positions."""


def sizes(name: str, value: object) -> tuple[int, ...]:
    """Return the whole numbers of an option: one, or a list.

    >>> sizes("n_positions", [64, 128])
    (64, 128)
    """
    numbers = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not numbers or not all(map(is_count, numbers)):
        raise ConfigError(
            f"{name}={value!r} is not a whole number of at least 1, nor a list of them.",
            hint=f"Pass for example {name}=128.",
            option=name,
            value=value,
        )
    return numbers


def check_kinds(options: dict[str, Any]) -> None:
    """Check that options are numbers, lists, or objects as they should be."""
    check_types(options, _TYPES)
    sizes("batch_size", options["batch_size"])
    sizes("n_positions", options["n_positions"])
    if (estimate := options["context_length_estimate"]) not in (None, 0):
        sizes("context_length_estimate", estimate)
    if not isinstance(options["neuron_config"], NeuronConfig | None):
        kind = type(options["neuron_config"]).__name__
        message = f"neuron_config is a {kind}."
        raise ConfigError(message, hint="Pass a NeuronConfig.", option="neuron_config", value=kind)


def check_window(value: object, length: int) -> None:
    """Check the tokens of a window of prompts, at most those of a sequence."""
    (size,) = sizes("window_context_length", value)
    if size > length:
        message = f"window_context_length={size} is more than n_positions={length}."
        hint = f"Pass at most {length}."
        raise ConfigError(message, hint=hint, option="window_context_length", value=size, n_positions=length)


def length_with_room(sequence_length: int, most: int, num_columns: int) -> int:
    """Return the length at which sequences end that begin with prompts of so many columns: at most what fits."""
    if not isinstance(sequence_length, int) or sequence_length < 1:
        message = f"sequence_length={sequence_length!r} is not a whole number, at least 1."
        hint = "Pass the tokens of the longest result, prompt included."
        raise ConfigError(message, hint=hint, option="sequence_length", value=sequence_length)
    if sequence_length > most:
        logger.warning("sequence_length=%d is more than n_positions=%d, where sequences end.", sequence_length, most)
    if sequence_length < num_columns <= most:
        raise ConfigError(
            f"sequence_length={sequence_length} is less than the {num_columns} tokens of the prompt.",
            hint=f"Pass more than {num_columns}, because it counts the prompt, and at most {most}.",
            option="sequence_length",
            value=sequence_length,
            num_tokens=num_columns,
        )
    return min(sequence_length, most)


def end_tokens(value: Any) -> list[int]:
    """Return the tokens that end a sequence, of one or a list."""
    ends: list[Any] = [value] if isinstance(value, (int, str)) else list(value)
    if wrong := [one for one in ends if not isinstance(one, int)]:
        message = f"The end token {wrong[0]!r} is not a whole number."
        raise ConfigError(message, hint="Pass the number of a token.", option="eos_token_id", value=str(wrong[0]))
    return ends


def require_ids(input_ids: object) -> None:
    """Check that tokens are whole numbers [rows, columns]."""
    kind = type(input_ids).__name__
    if isinstance(input_ids, torch.Tensor):
        if input_ids.ndim == 2 and not input_ids.is_floating_point():
            return
        kind = f"{input_ids.dtype} {list(input_ids.shape)}"
    raise ShapeError(
        f"input_ids is a {kind}, but must be whole numbers [rows, tokens].",
        hint='Pass tokenizer(texts, return_tensors="pt").input_ids.',
        kind=kind,
    )


def require_columns(input_ids: torch.Tensor, number: int | None) -> int:
    """Return how many of the last columns logits are wanted of; None: of all."""
    require_ids(input_ids)
    columns = input_ids.shape[1]
    if number is not None and (not is_count(number) or number > columns):
        message = f"speculation_length={number!r} is no number of the {columns} tokens of input_ids."
        hint = f"Pass at most {columns}, or leave it out."
        raise ShapeError(message, hint=hint, speculation_length=number, num_tokens=columns)
    return columns if number is None else number


def position(cache_ids: torch.Tensor | None) -> int:
    """Return the column that a call begins at."""
    if cache_ids is None:
        return 0
    ids = whole_numbers(cache_ids)
    if ids is None or ids.numel() == 0 or bool((ids < 0).any()):
        shown = cache_ids if ids is None else ids.tolist()
        message = f"cache_ids={shown!r} has no columns, which are whole numbers from 0 on."
        raise ShapeError(message, hint="Pass the columns [tokens].", cache_ids=shown)
    if ids.ndim > 1:
        raise ConfigError(
            f"cache_ids has {ids.ndim} axes: positions for each row belong to continuous batching.",
            hint="Pass the columns [tokens], with start_ids for padding on the left; or use generate_batch.",
            option="cache_ids",
            shape=list(ids.shape),
        )
    return int(ids.reshape(-1)[0])


def left_padding(start_ids: torch.Tensor | None, num_rows: int, padding_side: str) -> torch.Tensor | None:
    """Return the numbers of padding tokens on the left of rows; None if there are none.

    With padding on the right, `start_ids` has the numbers of the sequences, which are those of the rows.
    """
    if start_ids is None or padding_side == "left":
        return start_ids
    if (numbers := row_numbers(start_ids, num_rows).tolist()) != list(range(num_rows)):
        raise ShapeError(
            f"start_ids={numbers} is not 0 to {num_rows - 1}, but prompts have their padding on the right "
            '(padding_side="right").',
            hint='Leave start_ids out, or pass padding_side="left" for padding on the left.',
            start_ids=numbers,
            num_rows=num_rows,
        )
    return None


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


def length_of(options: dict[str, Any], config: PretrainedConfig, is_named: bool) -> Any:
    """Return `n_positions`, which the model's own limit bounds; the default is at most that."""
    text = config.get_text_config(decoder=True)
    limits = [limit for name in LIMITS if isinstance(limit := getattr(text, name, None), int)]
    longest = max(sizes("n_positions", options["n_positions"]))
    if not is_named:
        return min([longest, *limits])
    if limits and longest > min(limits):
        raise limit_error("n_positions", longest, min(limits))
    return options["n_positions"]
