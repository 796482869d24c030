"""`optimum.neuron.models.inference.backend.modules.generation.generation_utils`: positions of tokens."""

from __future__ import annotations

import torch


def position_ids_from_attention_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return the position of each token; padding has position 1.

    >>> position_ids_from_attention_mask(torch.tensor([[0, 1, 1, 1]]))
    tensor([[1, 0, 1, 2]])
    """
    return (attention_mask.long().cumsum(-1) - 1).masked_fill(attention_mask == 0, 1)


def increase_position_ids(position_ids: torch.Tensor, increment: int) -> torch.Tensor:
    """Return the position, [batch, 1], that is so many behind the last one of each sequence."""
    return position_ids.amax(dim=-1, keepdim=True) + increment
