"""Labels of the next token, of rows that are whole: a part of a row, or a stage, cannot tell what comes after it."""

from __future__ import annotations

import torch

IGNORED = -100
"""Label that losses leave out (torch, `CrossEntropyLoss`)."""


def next_labels(labels: torch.Tensor) -> torch.Tensor:
    """For each token of rows of labels, the label of the next one.

    >>> next_labels(torch.tensor([[5, 6, 7]])).tolist()
    [[6, 7, -100]]
    """
    return torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:].contiguous()
