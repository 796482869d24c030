"""Prompts of NxD Inference: no longer than `max_context_length`, with positions that padding does not count.

Shape legend: R rows, C columns.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from ..errors import ShapeError

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


def fitting(neuron_config: Any, ids_RC: torch.Tensor) -> torch.Tensor:
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
