"""What a call of NxD Inference asks for: prompts that begin sequences, or tokens that continue them.

Shape legend: R rows, C columns.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Self

import torch

from ..errors import ShapeError
from ..modeling import SequenceSlots

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """Checked inputs of a call."""

    ids_RC: torch.Tensor
    mask_RC: torch.Tensor
    """1 for real tokens of prompts."""
    positions_R: torch.Tensor
    """Position of the first token of each row."""
    slots: list[int]
    """Sequence of each row."""
    are_prompts: bool
    """Whether the rows begin sequences."""

    @classmethod
    def of(
        cls,
        neuron_config: Any,
        ids_RC: torch.Tensor,
        mask: torch.Tensor | None,
        positions_RC: torch.Tensor | None,
        seq_ids: torch.Tensor | None,
    ) -> Self:
        """Return the inputs of a call, or raise an error if they contradict each other."""
        num_rows, num_columns = ids_RC.shape
        if positions_RC is None:
            positions_RC = torch.arange(num_columns).expand(num_rows, -1) if mask is None else _counted(mask)
        positions_RC = positions_RC.long()
        if positions_RC.shape != ids_RC.shape:
            raise ShapeError(
                f"position_ids has the shape {list(positions_RC.shape)}, and input_ids {list(ids_RC.shape)}.",
                hint="Pass a position for each token.",
                positions=list(positions_RC.shape),
                ids=list(ids_RC.shape),
            )
        begins_R = (positions_RC == 0).any(1)
        if bool(begins_R.any()) and not bool(begins_R.all()):
            raise ShapeError(
                "Some rows begin at position 0, and others do not.",
                hint="Pass prompts and tokens of later positions in calls of their own.",
                rows=begins_R.tolist(),
            )
        mask_RC = torch.ones_like(ids_RC)
        if bool(begins_R.all()):
            mask_RC = _of_positions(positions_RC) if mask is None else mask[:, :num_columns]
            ids_RC, mask_RC = fitting(neuron_config, ids_RC, mask_RC)
        slots = list(range(num_rows)) if seq_ids is None else torch.as_tensor(seq_ids).reshape(-1).tolist()
        return cls(
            ids_RC=ids_RC.long(),
            mask_RC=mask_RC.long(),
            positions_R=positions_RC[:, 0],
            slots=slots,
            are_prompts=bool(begins_R.all()),
        )

    def run(self, slots: SequenceSlots, adapter_ids: Any) -> torch.Tensor:
        """Return the logits [R, tokens, V] of the call."""
        if self.are_prompts:
            return slots.begin(self.slots, self.ids_RC, self.mask_RC, adapter_ids)
        return slots.extend(self.slots, self.ids_RC, self.positions_R)


def fitting(neuron_config: Any, ids_RC: torch.Tensor, mask_RC: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return prompts that are no longer than `max_context_length`; longer ones are cut if that is allowed."""
    most, num_columns = neuron_config.max_context_length, ids_RC.shape[1]
    if num_columns <= most:
        return ids_RC, mask_RC
    message = f"Inputs supplied ({num_columns} tokens) are longer than max_context_length ({most} tokens)."
    if not neuron_config.allow_input_truncation:
        hint = "To truncate inputs, set allow_input_truncation=True."
        raise ShapeError(message, hint=hint, num_tokens=num_columns, max_context_length=most)
    logger.warning("%s Truncating to %d.", message, most)
    return ids_RC[:, :most], mask_RC[:, :most]


def _counted(mask_RC: torch.Tensor) -> torch.Tensor:
    """Positions of prompts, 1 where there is padding."""
    return (mask_RC.long().cumsum(-1) - 1).masked_fill(mask_RC == 0, 1)


def _of_positions(positions_RC: torch.Tensor) -> torch.Tensor:
    """1 for the tokens that positions count from 0 on."""
    return (positions_RC == torch.arange(positions_RC.shape[1])).long().cumprod(1)
