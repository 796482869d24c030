"""Checkpoints of a trainer: written beside their place and moved there whole; resumed only when they are the model's.

A mix-in before a class that is derived from `Trainer`. What is written, and when, is upstream's.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.trainer_utils import rotate_checkpoints

from ..errors import ArtifactError, refusal
from . import checkpoints
from .resume import restore

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class WholeCheckpoints(_Base):
    """Whatever kills the process, a checkpoint is complete or not there."""

    _whole: Any
    """Of `DistributedTraining`: not None where parameters are in parts."""
    _is_staging = False
    """Whether upstream is writing a checkpoint, beside its place."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Upstream writes into a folder beside the place; what it does with finished checkpoints comes after."""
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
            checkpoints.finish(
                staged,
                final,
                step=self.state.global_step,
                layout=self._layout(),
                optimizer=self._optimizer_name(),
            )
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

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, checkpoints.STAGING) if self._is_staging else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._is_staging:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self.args.device.type == "neuron":
            checkpoints.save_device_rng(output_dir, self.args.device, self.args.process_index)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is not None and self.args.device.type == "neuron":
            checkpoints.load_device_rng(checkpoint, self.args.device, self.args.process_index)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._restored(resume_from_checkpoint, self.model if model is None else model):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        if not self._restored(self.state.best_model_checkpoint, self.model):
            super()._load_best_model()

    def _restored(self, folder: str, model: Any) -> bool:
        return not self.is_fsdp_enabled and restore(
            self.accelerator.unwrap_model(model, keep_torch_compile=False), folder
        )

    def _checkpoint_to_resume(self, asked: str | bool | None) -> str | None:
        if asked is None or asked is False:
            return None
        folder: Path | None = Path(str(asked))
        if asked is True:
            checkpoints.tidy(self.args.output_dir)
            found = checkpoints.last_complete(self.args.output_dir)
            for passed in found.rejected:
                logger.warning("not resumed from %s: %s", passed.candidate, passed.reason)
            folder = found.value
            if folder is None:
                raise ArtifactError(
                    refusal(
                        asked="resume_from_checkpoint=True",
                        found=str(found),
                        why="there is no state to go on from",
                        do="begin without it; checkpoints are saved every save_steps",
                    )
                )
        assert folder is not None
        checkpoints.require_resumable(folder, self._layout(), optimizer=self._optimizer_name())
        return str(folder)

    def _optimizer_name(self) -> str:
        """Class of the optimizer, also before there is one."""
        # It may be in accelerate's wrapper.
        made = getattr(self.optimizer, "optimizer", self.optimizer)
        if made is not None:
            return type(made).__name__
        kind, _ = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, self.model)
        return str(kind.__name__)

    def _layout(self) -> dict[str, Any]:
        """What decides how states are split; the number of data-parallel processes does not."""
        layout = self.args.trn_config
        return {
            "tensor_parallel_size": layout.tensor_parallel_size,
            "pipeline_parallel_size": layout.pipeline_parallel_size,
            "context_parallel_size": layout.context_parallel_size,
            "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
            "fsdp": self.is_fsdp_enabled,
            "states_in_shards": self._whole is not None,
        }
