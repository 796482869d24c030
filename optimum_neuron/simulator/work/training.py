"""Arithmetic and memory of training a transformer: what one step takes, whatever hardware it runs on.

A token takes 6 operations for each parameter, forward and backward (Kaplan et al. 2020), and attention 12 for each
layer and position. Adam keeps two moments in float32, and a master copy of 16-bit weights; with ZeRO-1 the copies
share both (Rajbhandari et al. 2020).

    >>> step_flops(num_parameters=10, num_layers=1, hidden=1, tokens=2, sequence_length=1)
    144
"""

from __future__ import annotations

RECOMPUTE = 4 / 3
"""Operations of a step over those without activation checkpointing: the forward runs twice."""


def step_flops(*, num_parameters: int, num_layers: int, hidden: int, tokens: int, sequence_length: int) -> int:
    """Operations of forward and backward over `tokens`, in sequences of `sequence_length`."""
    return tokens * (6 * num_parameters + 12 * num_layers * hidden * sequence_length)


def activation_bytes(*, tokens: int, hidden: int, num_layers: int, tensor_parallel: int, checkpointing: bool) -> int:
    """16-bit activations that the backward needs, of one microbatch on one core.

    34 bytes for each token and value of a layer without attention scores, which the fused kernel does not keep; with
    checkpointing two for each layer and 34 for the one at work (Korthikanti et al. 2022, section 4, with sequence
    parallelism).
    """
    each = tokens * hidden // tensor_parallel
    return each * (2 * num_layers + 34) if checkpointing else each * 34 * num_layers
