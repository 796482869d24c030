"""Prompts of NxD Inference: no longer than `max_context_length`, with positions that padding does not count.

Shape legend: R rows, C columns.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from ..errors import ShapeError

logger = logging.getLogger(__name__)


def positions_of(ids_RC: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the positions of tokens that nobody passed: those that a mask counts, and 1 for padding."""
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
