"""Labels of the next token, as decoder losses expect them. It does not depend on models.

Rows are whole: a part of a row cannot show the labels after it.
"""

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
