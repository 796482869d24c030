"""Checkpoints of a model in parts, as a mix-in before `Trainer`: whole weights, optimizer states in shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer import SCHEDULER_NAME

from ..trainer.optimizer import NARROW, MasterWeights
from . import checkpoint
from .whole import WholeModel, load_weights

if TYPE_CHECKING:
    from transformers import Trainer as _Base

    from .pipeline import Pipeline
else:
    _Base = object


class ShardedCheckpoints(_Base):
    """Saves and loads what cores have of a model; of a model that is whole, upstream does."""

    model: Any
    _pipeline: Pipeline | None = None
    _whole: WholeModel | None = None
    """What the model had before this package took it apart; None where it did not."""
    _narrow: frozenset[str] = frozenset()
    """Names of its trainable parameters that had 16 bits."""
    _masters: MasterWeights | None = None
    """Of a model that is whole."""

    def _named_masters(self) -> dict[str, torch.Tensor]:
        """Float32 weights of 16-bit parameters: beside a whole model; of one in parts, its parameters."""
        if self._whole is None:
            return {} if self._masters is None else self._masters.named(self.model)
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name in self._narrow and parameter.dtype not in NARROW
        }

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self._whole is None:
            super()._save(output_dir, state_dict)
            return
        group = None if self._pipeline is None else self._pipeline.group
        whole = self._whole.gather(self.model, group) if state_dict is None else state_dict
        # Of what is in parts, names, dtypes and modules differ.
        parts, self.model = self.model, self._whole.empty
        try:
            super()._save(output_dir, whole)
        finally:
            self.model = parts

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._whole is None:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        checkpoint.save_optimizer(self.model, self.optimizer, output_dir, self._named_masters())
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir, SCHEDULER_NAME))

    def _load_optimizer_and_scheduler(self, checkpoint_folder: str | None) -> None:
        if checkpoint_folder is None or not checkpoint.has_sharded_optimizer(checkpoint_folder):
            super()._load_optimizer_and_scheduler(checkpoint_folder)
            return
        checkpoint.load_optimizer(self.model, self.optimizer, checkpoint_folder, self._named_masters())
        checkpoint.load_scheduler(self.lr_scheduler, Path(checkpoint_folder, SCHEDULER_NAME))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if self._whole is None:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        load_weights(self.model, self._whole, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self._whole is None:
            super()._load_best_model()
        else:
            self._load_from_checkpoint(self.state.best_model_checkpoint)
