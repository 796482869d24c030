"""`optimum.neuron.models.inference.backend.modules.generation.sampling`: parameters of sampling on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

Numbers: TypeAlias = float | Sequence[float] | torch.Tensor


def prepare_sampling_params(
    batch_size: int, top_k: Numbers = 1, top_p: Numbers = 1.0, temperature: Numbers = 1.0
) -> torch.Tensor:
    """Return top_k, top_p, and temperature of each sequence as a tensor [batch, 3].

    Args:
        batch_size: number of sequences.
        top_k: likeliest tokens to choose from, one number for all sequences or one for each; 1 takes the likeliest.
        top_p: sum of probabilities of these tokens, likewise.
        temperature: divisor of the logits, likewise.
    """
    columns = [torch.as_tensor(value, dtype=torch.float32).reshape(-1) for value in (top_k, top_p, temperature)]
    return torch.stack([column.expand(batch_size) for column in columns], dim=1)
