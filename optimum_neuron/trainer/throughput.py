"""Tokens per second of this host, between two log entries. Nothing here is simulated, and nothing is printed.

Only the time of training steps counts: no evaluation, no saving.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from transformers import TrainerCallback


class Throughput(TrainerCallback):
    """Counts tokens and the seconds of the steps that they took."""

    def __init__(self) -> None:
        self.length = 0
        """Tokens of a row of the last batch, padding included."""
        self._num_tokens = 0
        self._seconds = 0.0
        self._start = 0.0

    def count(self, batch: Mapping[str, Any], name: str) -> None:
        """Count a batch: its tokens without padding, as far as its mask tells.

        Args:
            batch: what the model is given.
            name: its main input.
        """
        tokens, mask = batch.get(name), batch.get("attention_mask")
        if not isinstance(tokens, torch.Tensor) or tokens.dtype.is_floating_point:
            return
        self.length = tokens.shape[-1]
        if isinstance(mask, torch.Tensor) and mask.shape == tokens.shape:
            self._num_tokens += int(mask.sum())
        else:
            self._num_tokens += tokens.numel()

    def take(self) -> tuple[int, float]:
        """Tokens and seconds since it was last asked."""
        found = self._num_tokens, self._seconds
        self._num_tokens, self._seconds = 0, 0.0
        return found

    def on_step_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self._seconds += time.perf_counter() - self._start
