"""Norms of layers whose inputs may be a part of the sequence: torch's, with the vendor's mark on their parameters.

`allreduce_sequence_parallel_gradients` sums the gradients of marked parameters over the ranks of tensor parallelism.

>>> norm = RMSNorm(8, sequence_parallel_enabled=True)
>>> norm.weight.sequence_parallel_enabled, norm.eps
(True, 1e-05)
"""

from __future__ import annotations

from typing import Any

from torch import nn


class LayerNorm(nn.LayerNorm):
    """Layer norm as `torch.nn.LayerNorm`, for a whole sequence or for this rank's part of it.

    Args:
        normalized_shape: sizes of the last dimensions, which are normalized together.
        options: those of `torch.nn.LayerNorm`.
        sequence_parallel_enabled: inputs are this rank's part of a sequence.
    """

    def __init__(self, normalized_shape: Any, *options: Any, sequence_parallel_enabled: bool = False, **named: Any):
        super().__init__(normalized_shape, *options, **named)
        _mark(self, sequence_parallel_enabled)


class RMSNorm(nn.RMSNorm):
    """Root mean square norm as `torch.nn.RMSNorm`, with weights always and the vendor's `eps`.

    Args:
        normalized_shape: sizes of the last dimensions, which are normalized together.
        eps: added to the mean of squares.
        sequence_parallel_enabled: inputs are this rank's part of a sequence.
        options: `device` and `dtype`.
    """

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, sequence_parallel_enabled: bool = False, **options: Any
    ):
        super().__init__(normalized_shape, eps, **options)
        _mark(self, sequence_parallel_enabled)


def _mark(norm: nn.Module, sequence_parallel_enabled: bool) -> None:
    norm.sequence_parallel_enabled = sequence_parallel_enabled
    for parameter in norm.parameters():
        parameter.sequence_parallel_enabled = sequence_parallel_enabled
