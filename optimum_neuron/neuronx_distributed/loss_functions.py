"""Cross entropy of logits whose vocabulary ranks divide; no rank has all logits of a token."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ..errors import ConfigError
from . import mappings


def parallel_cross_entropy(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, label_smoothing: float = 0.0
) -> torch.Tensor:
    """Return the loss of each token.

    Args:
        vocab_parallel_logits: this rank's part of the logits, [..., vocabulary / ranks].
        target: ids of the whole vocabulary, [...]; an id outside of it, such as -100, has the logit 0.
        label_smoothing: probability that is divided among the other ids.
    """
    if not 0.0 <= label_smoothing < 1.0:
        message = f"label_smoothing is {label_smoothing}."
        raise ConfigError(message, hint="Pass a number from 0, below 1.", label_smoothing=label_smoothing)
    logits, log_sum = _normalized(vocab_parallel_logits)
    loss = log_sum - _logit_of(logits, target)
    if label_smoothing:
        group = mappings.group_or_tensor(None)
        size = logits.shape[-1] * mappings.size_of(group)
        smoothing = label_smoothing * size / (size - 1)
        mean = mappings.reduce_from_tensor_model_parallel_region(logits.sum(-1), group) / size
        loss = (1.0 - smoothing) * loss - smoothing * (mean - log_sum)
    return loss


def from_parallel_logits_to_logprobs(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, inference: bool = True
) -> torch.Tensor:
    """Return the logarithm of each next token's probability.

    Args:
        vocab_parallel_logits: this rank's part of the logits, [batch, length, vocabulary / ranks].
        target: ids, [batch, length]; the logits of a position are for the id at the next one.
        inference: compute no gradient.
    """
    with torch.set_grad_enabled(torch.is_grad_enabled() and not inference):
        logits, log_sum = _normalized(vocab_parallel_logits)
        shifted = target.roll(-1, dims=-1)
        return (_logit_of(logits, shifted) - log_sum)[:, :-1]


def _normalized(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits without their maximum, and the logarithm of the sum of their exponentials over all ranks."""
    group = mappings.group_or_tensor(None)
    largest = mappings.reduce(logits.detach().amax(-1), group, dist.ReduceOp.MAX)
    logits = logits - largest.unsqueeze(-1)
    total = mappings.reduce_from_tensor_model_parallel_region(logits.exp().sum(-1), group)
    return logits, total.log()


def _logit_of(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The logit of each target, from the rank that has it."""
    group, size = mappings.group_or_tensor(None), logits.shape[-1]
    place = target - mappings.rank_in(group) * size
    is_here = (place >= 0) & (place < size)
    found = logits.gather(-1, (place * is_here).unsqueeze(-1)).squeeze(-1) * is_here.to(logits.dtype)
    return mappings.reduce_from_tensor_model_parallel_region(found, group)
