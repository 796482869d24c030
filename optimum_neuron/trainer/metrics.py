"""Entries of the training log: tokens per second of this host, and estimates for the simulated instance.

Host throughput is measured between two log entries, and counts only the time of training steps: no evaluation, no
saving. Estimates are the simulator's (`estimates.py`) and are named `neuron/est_*`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from ..base.transformers_types import TrainingArguments
from .estimates import log_entries, step_options

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState


class Metrics:
    """The log entries of one trainer."""

    def __init__(self) -> None:
        self.throughput = Throughput()
        self._estimates: dict[tuple[Any, ...], dict[str, float]] = {}

    def entries(self, trainer: Trainer) -> dict[str, float]:
        """Return the entries since the last call."""
        entries: dict[str, float] = {}
        if trainer.args.enable_throughput_metrics:
            num_tokens, seconds = self.throughput.take()
            if num_tokens and seconds:
                local = torch.tensor(float(num_tokens), device=trainer.args.device)
                # Cores that share layers, or are stages of one pipeline, count the same tokens.
                total = float(trainer.accelerator.reduce(local)) / trainer.get_tp_size()
                entries["neuron/host_tokens_per_s"] = round(total / seconds, 1)
        if trainer.args.enable_mfu_metrics and self.throughput.length:
            options = step_options(trainer) | {"sequence_length": self.throughput.length}
            step = tuple(options.values())
            if step not in self._estimates:
                self._estimates[step] = log_entries(trainer.model.config, **options)
            entries |= self._estimates[step]
        return entries


class Throughput(TrainerCallback):
    """Counts the tokens and seconds of training steps."""

    def __init__(self) -> None:
        self.length = 0
        """Tokens of a sequence in the last batch, padding included."""
        self._num_tokens = 0
        self._seconds = 0.0
        self._start = 0.0

    def count(self, batch: Mapping[str, Any], name: str) -> None:
        """Count the tokens of a batch in its main input, without padding if it has a mask."""
        tokens, mask = batch.get(name), batch.get("attention_mask")
        if not isinstance(tokens, torch.Tensor) or tokens.dtype.is_floating_point:
            return
        self.length = tokens.shape[-1]
        if isinstance(mask, torch.Tensor) and mask.shape == tokens.shape:
            self._num_tokens += int(mask.sum())
        else:
            self._num_tokens += tokens.numel()

    def take(self) -> tuple[int, float]:
        """Return tokens and seconds since the last call."""
        totals = self._num_tokens, self._seconds
        self._num_tokens, self._seconds = 0, 0.0
        return totals

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: object
    ) -> None:
        self._start = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **keywords: object
    ) -> None:
        self._seconds += time.perf_counter() - self._start
