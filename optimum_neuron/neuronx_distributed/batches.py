"""Batches under context parallelism: each rank has a part of every sequence."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import functional as F

from ..base.labels import IGNORED
from .arithmetic import divide
from .parallel_state import CONTEXT


def get_batch_on_this_context_parallel_rank(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return this rank's part of each sequence; labels become those of the next token before they are cut.

    Args:
        batch: tensors of shape [batch, length], by name.
    """
    count = CONTEXT.size()
    if count == 1:
        return dict(batch)
    parts = {}
    for name, value in batch.items():
        whole = F.pad(value[:, 1:], (0, 1), value=IGNORED) if name == "labels" else value
        if whole is not None and whole.shape[1] > 1:
            length = divide(whole.shape[1], count)
            whole = whole[:, CONTEXT.rank() * length : (CONTEXT.rank() + 1) * length]
        parts[name] = whole
    return parts
