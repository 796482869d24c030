"""Checkpoints of a trainer: written to a staging folder and moved when complete; resumed only if they fit the model.

A mix-in before a class that is derived from `Trainer`. Upstream decides when to save, and writes the files of a model
that is whole; of a distributed model (`_distributed`), weights are gathered and optimizer states saved in shards.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers.trainer import SCHEDULER_NAME
from transformers.trainer_utils import rotate_checkpoints

from ..distributed import NARROW, DistributedModel, checkpoint as shards, load_weights, plain_optimizer
from ..errors import ArtifactError
from ..xla import serialization
from . import checkpoints
from .optimizer import MasterWeights
from .resume import restore

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer as _Base
else:
    _Base = object


class WholeCheckpoints(_Base):
    """Saves checkpoints that are complete or not there, whatever kills the process, and resumes from them."""

    model: Any
    _distributed: DistributedModel
    _masters: MasterWeights | None = None
    """Float32 weights of a model that is not distributed."""
    _is_staging = False
    """Whether upstream is writing a checkpoint, in the staging folder."""

    # Save

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        """Let upstream write into the staging folder; then move it, push it, and delete old ones."""
        saves = self.args.should_save
        run_dir = Path(self._get_output_dir(trial))
        name = f"checkpoint-{self.state.global_step}"
        staged, final = run_dir / checkpoints.STAGING / name, run_dir / name
        if saves:
            checkpoints.tidy(run_dir)
        self.accelerator.wait_for_everyone()
        self._is_staging = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._is_staging = False
        self.accelerator.wait_for_everyone()
        if self.state.best_model_checkpoint == str(staged):
            self.state.best_model_checkpoint = str(final)
        if saves:
            self.state.save_to_json(str(staged / checkpoints.STATE))
            step, layout, optimizer = self.state.global_step, self._layout(), self._optimizer_name()
            checkpoints.finish(staged, final, step=step, layout=layout, optimizer=optimizer)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))
        if saves:
            rotate_checkpoints(
                output_dir=str(run_dir),
                save_total_limit=self.args.save_total_limit,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=True,
            )

    def _get_output_dir(self, trial: object) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, checkpoints.STAGING) if self._is_staging else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._is_staging:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        self._save_whole(output_dir, state_dict)
        _name_adapter(Path(output_dir or self.args.output_dir))

    def _save_whole(self, output_dir: str | None, state_dict: object) -> None:
        if self._distributed.whole is None:
            super()._save(output_dir, state_dict)
            return
        if state_dict is None:
            pipeline = self._distributed.pipeline
            state_dict = self._distributed.whole.gather(self.model, None if pipeline is None else pipeline.group)
        # The distributed model has other names, dtypes, and modules.
        model, self.model = self.model, self._distributed.whole.empty
        try:
            super()._save(output_dir, state_dict)
        finally:
            self.model = model

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self._distributed.whole is None:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        shards.save_optimizer(self.model, self.optimizer, output_dir, self._named_masters())
        if self.args.should_save:
            serialization.write_file(self.lr_scheduler.state_dict(), Path(output_dir, SCHEDULER_NAME))

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self.args.device.type == "neuron":
            checkpoints.save_device_rng(output_dir, self.args.device, self.args.process_index)

    # Load

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if not self._restored(resume_from_checkpoint, self.model if model is None else model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        if not self._restored(self.state.best_model_checkpoint, self.model):
            super()._load_best_model()

    def _restored(self, folder: Any, model: nn.Module) -> bool:
        """Load a checkpoint's weights if upstream cannot, and return whether they are loaded."""
        if self._distributed.whole is not None:
            load_weights(self.model, self._distributed.whole, folder)
            return True
        if self.is_fsdp_enabled:
            return False
        return restore(self.accelerator.unwrap_model(model, keep_torch_compile=False), folder)

    def _load_optimizer_and_scheduler(self, checkpoint_folder: str | None) -> None:
        if checkpoint_folder is None or not shards.has_sharded_optimizer(checkpoint_folder):
            super()._load_optimizer_and_scheduler(checkpoint_folder)
            return
        shards.load_optimizer(self.model, self.optimizer, checkpoint_folder, self._named_masters())
        shards.load_scheduler(self.lr_scheduler, Path(checkpoint_folder, SCHEDULER_NAME))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and self.args.device.type == "neuron":
            checkpoints.load_device_rng(checkpoint, self.args.device, self.args.process_index)

    def _checkpoint_to_resume(self, resume: str | bool | None) -> str | None:
        if resume is None or resume is False:
            return None
        folder: Path | None = Path(str(resume))
        if resume is True:
            checkpoints.tidy(self.args.output_dir)
            newest = checkpoints.last_complete(self.args.output_dir)
            for rejected in newest.rejected:
                logger.warning("not resumed from %s: %s", rejected.candidate, rejected.reason)
            folder = newest.value
            if folder is None:
                message = f"resume_from_checkpoint=True, but {newest.reason}."
                hint = "Start without it; checkpoints are saved every save_steps."
                raise ArtifactError(message, hint=hint, output_dir=self.args.output_dir)
        assert folder is not None
        checkpoints.require_resumable(folder, self._layout(), optimizer=self._optimizer_name())
        return str(folder)

    # Facts of a checkpoint

    def _named_masters(self) -> dict[str, torch.Tensor]:
        """Return the float32 weights of 16-bit parameters: copies, or the parameters of a distributed model."""
        if self._distributed.whole is None:
            return {} if self._masters is None else self._masters.named(self.model)
        return {
            name: parameter
            for name, parameter in self.model.named_parameters()
            if name in self._distributed.narrow and parameter.dtype not in NARROW
        }

    def _optimizer_name(self) -> str:
        """Return the class of the optimizer, also before it is created."""
        # It may be in accelerate's wrapper.
        optimizer = plain_optimizer(self.optimizer)
        if optimizer is not None:
            return type(optimizer).__name__
        kind, _ = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, self.model)
        return str(kind.__name__)

    def _layout(self) -> dict[str, Any]:
        """Return the settings that decide how states are split; the number of replicas does not."""
        layout = self.args.trn_config
        return {
            **layout.sizes(),
            "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
            "fsdp": self.is_fsdp_enabled,
            "states_in_shards": self._distributed.whole is not None,
        }


def _name_adapter(folder: Path) -> None:
    """Copy the configuration of an adapter to where scripts of Optimum Neuron expect it; its weights stay in place."""
    configuration = folder / "adapter_config.json"
    if configuration.is_file():
        (folder / "adapter_default").mkdir(exist_ok=True)
        shutil.copy(configuration, folder / "adapter_default")
