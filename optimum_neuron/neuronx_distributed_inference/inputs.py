"""Prompts of NxD Inference: no longer than `max_context_length`, with positions that padding does not count.

Shape legend: R rows, C columns.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ConfigError, ShapeError

if TYPE_CHECKING:
    from .config import NeuronConfig

logger = logging.getLogger(__name__)


def checked_prompts(ids: Any, mask: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prompts and their mask as tensors of one shape; without a mask, all tokens are real."""
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2:  # noqa: PLR2004
        shape = list(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        hint = "Pass the input_ids of a tokenizer with return_tensors='pt'."
        raise ShapeError(f"input_ids is no tensor [batch, columns]: {shape}.", hint=hint, shape=shape)
    mask_RC = torch.ones_like(ids) if mask is None else torch.as_tensor(mask)
    if mask_RC.shape != ids.shape:
        shapes = {"input_ids": list(ids.shape), "attention_mask": list(mask_RC.shape)}
        message = f"attention_mask has shape {shapes['attention_mask']}, and input_ids {shapes['input_ids']}."
        raise ShapeError(message, hint="Pass 1 or 0 for each token.", **shapes)
    if empty := (mask_RC == 0).all(1).nonzero().flatten().tolist():
        message = f"attention_mask has no token in row {empty[0]}."
        raise ShapeError(message, hint="Remove the row, or begin it with a token.", rows=empty)
    return ids, mask_RC


def positions_of(ids_RC: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return positions of tokens, counted from a mask, with 1 for padding."""
    num_rows, num_columns = ids_RC.shape
    if mask is None:
        return torch.arange(num_columns).expand(num_rows, -1)
    return (mask.long().cumsum(-1) - 1).masked_fill(mask == 0, 1)[:, -num_columns:]


def fitting(neuron_config: NeuronConfig, ids_RC: torch.Tensor) -> torch.Tensor:
    """Return prompts that are no longer than `max_context_length`; longer ones are cut if that is allowed."""
    most, num_columns = neuron_config.max_context_length, ids_RC.shape[1]
    if num_columns <= most:
        return ids_RC
    message = f"Inputs supplied ({num_columns} tokens) are longer than max_context_length ({most} tokens)."
    if not neuron_config.allow_input_truncation:
        hint = "To truncate inputs, set allow_input_truncation=True."
        raise ShapeError(message, hint=hint, num_tokens=num_columns, max_context_length=most)
    logger.warning("%s Truncating to %d.", message, most)
    return ids_RC[:, :most]


def require_room(neuron_config: NeuronConfig, ids_RC: torch.Tensor, options: Mapping[str, Any]) -> None:
    """Check that the tokens that a call of `generate` names fit the compiled `max_length`.

    A limit that only a file of the checkpoint has is no request: answers end where there is no more room.
    """
    most, num_columns = neuron_config.max_length, ids_RC.shape[1]
    lengths = {"max_length": options.get("max_length"), "max_new_tokens": options.get("max_new_tokens")}
    for name, value in lengths.items():
        if not isinstance(value, int):
            continue
        length = value + (num_columns if name == "max_new_tokens" else 0)
        if length > most:
            longest = most - (num_columns if name == "max_new_tokens" else 0)
            raise ConfigError(
                f"{name}={value} makes sequences of {length} tokens, but the model was compiled for {most} (seq_len).",
                hint=f"Pass {name}={longest} or less, or compile with a larger seq_len.",
                option=name,
                value=value,
                max_length=most,
            )


def padded_left(ids_RC: torch.Tensor, mask_RC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts and their mask with all padding on the left, which transformers continues."""
    order = mask_RC.long().argsort(dim=1, stable=True)
    return ids_RC.gather(1, order), mask_RC.gather(1, order)
