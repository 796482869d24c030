"""The steps of `Trainer` that differ where a model is spread over cores, as a mix-in before a class derived from it.

Data-parallel runs without ZeRO are upstream's (DDP), and so is `fsdp`. Everything else is a model of DTensors or a
stage of a pipeline; upstream knows the first, since it loads such models itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, Trainer
from transformers.trainer import SCHEDULER_NAME

from .. import env
from ..errors import ConfigError, refusal
from . import checkpoint
from .mesh import require_agreement, require_processes

if TYPE_CHECKING:
    from transformers import Trainer as _Base

    from .pipeline import Pipeline
else:
    _Base = object


class DistributedTraining(_Base):
    """Lays a model out over cores before `Trainer` sees it.

    Raises:
        ConfigError: layouts that this model, or this number of processes, cannot have.
    """

    _is_spread = False
    """Whether parameters are in parts, and this package's to save and load."""
    _pipeline: Pipeline | None = None

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        # Where arguments stand differs between trainers; the model is always first.
        model = keywords.get("model", positional[0] if positional else None)
        args = next((value for value in (keywords.get("args"), *positional) if is_spread(value)), None)
        if args is None:
            super().__init__(*positional, **keywords)
            return
        self._is_spread = True
        self._whole = _require_whole_model(model, args)
        stage = _lay_out(model, args, self._whole)
        # Upstream refuses to save such models with their optimizer, because it cannot; `checkpoint.py` can.
        only_model, args.save_only_model = args.save_only_model, True
        try:
            super().__init__(*positional, **keywords)
        finally:
            args.save_only_model = only_model
        if stage is not None:
            self._pipeline = self._make_pipeline(*stage)

    # Pipelines

    def _make_pipeline(self, stage: Any, mesh: Any) -> Pipeline:
        from .pipeline import Pipeline

        changed = {
            "label_smoothing_factor": self.label_smoother is not None,
            "compute_loss_func": self.compute_loss_func is not None,
            "average_tokens_across_devices=False": not self.args.average_tokens_across_devices,
            f"{type(self).__name__}.compute_loss": type(self).compute_loss is not Trainer.compute_loss,
        }
        if any(changed.values()):
            raise ConfigError(
                refusal(
                    asked=f"pipeline_parallel_size with {', '.join(name for name, is_so in changed.items() if is_so)}",
                    found="a loss that is not the model's",
                    why="the last stage computes the loss of each part of a batch, from logits and labels alone",
                    do="leave it out, or use tensor_parallel_size or zero_1",
                )
            )
        return Pipeline(
            stage, mesh, loss=self._loss_of_logits, num_microbatches=self.args.pipeline_parallel_num_microbatches
        )

    def _loss_of_logits(self, logits: torch.Tensor, labels: torch.Tensor, num_items: Any) -> torch.Tensor:
        vocab_size = self.model.config.get_text_config().vocab_size
        loss = self.model.loss_function(
            logits=logits, labels=labels, vocab_size=vocab_size, num_items_in_batch=num_items
        )
        # As `Trainer.compute_loss`: the labels of all batches are counted, and gradients are averaged over batches.
        return loss * (self.accelerator.num_processes // self.get_tp_size())

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one batch; through the stages where there is a pipeline."""
        if self._pipeline is None:
            return super().training_step(model, inputs, num_items_in_batch)
        model.train()
        with self.compute_loss_context_manager():
            return self._pipeline.train(self._prepare_inputs(inputs), num_items_in_batch)

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, *positional: Any, **keywords: Any
    ) -> Any:
        """One batch of an evaluation; through the stages where there is a pipeline."""
        if self._pipeline is None:
            return super().prediction_step(model, inputs, prediction_loss_only, *positional, **keywords)
        inputs = self._prepare_inputs(inputs)
        num_items = self._get_num_items_in_batch([inputs], self.args.device)
        with torch.no_grad(), self.compute_loss_context_manager():
            logits, loss = self._pipeline.evaluate(inputs, num_items)
        return (loss, None, None) if prediction_loss_only else (loss, logits, inputs["labels"])

    def _sync_replicated_trainable_parameters(self, model: Any) -> None:
        if self._pipeline is None:
            super()._sync_replicated_trainable_parameters(model)

    def _clip_grad_norm(self, model: Any) -> Any:
        if self._pipeline is None:
            return super()._clip_grad_norm(model)
        return self._pipeline.clip(self.args.max_grad_norm)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        if grad_norm is None and self._pipeline is not None:
            grad_norm = self._pipeline.clip(float("inf"))
        return super()._get_grad_norm(model, grad_norm=grad_norm)

    # Checkpoints

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self._pipeline is None:
            super()._save(output_dir, state_dict)
            return
        whole = self._pipeline.full_state_dict(self._whole) if state_dict is None else state_dict
        # What is whole already must not be gathered by `save_pretrained`.
        config = self.model.config
        distributed, config.distributed_config = config.distributed_config, None
        try:
            super()._save(output_dir, whole)
        finally:
            config.distributed_config = distributed

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._is_spread:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        checkpoint.save_optimizer(self.model, self.optimizer, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir, SCHEDULER_NAME))

    def _load_optimizer_and_scheduler(self, checkpoint_folder: str | None) -> None:
        if checkpoint_folder is None or not checkpoint.has_sharded_optimizer(checkpoint_folder):
            super()._load_optimizer_and_scheduler(checkpoint_folder)
            return
        checkpoint.load_optimizer(self.model, self.optimizer, checkpoint_folder)
        self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint_folder, SCHEDULER_NAME), weights_only=True))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._is_spread:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        checkpoint.require_weights_of(self._whole, resume_from_checkpoint, type(self.model).__name__)
        checkpoint.load_weights(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self._is_spread:
            self._load_from_checkpoint(self.state.best_model_checkpoint)
        else:
            super()._load_best_model()


def is_spread(arguments: Any) -> bool:
    """Whether this package distributes the parameters of a run, and not upstream."""
    layout = getattr(arguments, "trn_config", None)
    return layout is not None and layout.spreads_model


def _require_whole_model(model: Any, arguments: Any) -> dict[str, torch.Tensor]:
    """Names and shapes of a model's parameters before they are split.

    Raises:
        ConfigError: no model of transformers, or one that is in parts already.
    """
    if isinstance(model, PreTrainedModel) and not model.is_distributed_loading_by_transformers:
        return {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
    raise ConfigError(
        refusal(
            asked=f"{_words(arguments)} of {type(model).__name__}",
            found="a model in parts already" if isinstance(model, PreTrainedModel) else "no model of transformers",
            why="parameters are split by their names before training begins",
            do="load the whole model and pass it; adapters and model_init work with data parallelism alone (leave "
            "the layout out)",
        )
    )


def _words(arguments: Any) -> str:
    layout = arguments.trn_config
    asked = {
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
    }
    return ", ".join(f"{name}={value}" for name, value in asked.items() if value is True or value > 1)


def _lay_out(model: Any, arguments: Any, whole: Mapping[str, torch.Tensor]) -> Any:
    """Distribute a model in place; the stage and the mesh of its pipeline, where there is one."""
    from . import pipeline
    from .shard import shard

    layout = arguments.trn_config
    sizes = require_processes(layout, arguments.world_size)
    require_agreement(
        {
            "layout": str(layout),
            "per_device_train_batch_size": arguments.per_device_train_batch_size,
            "model": f"{sum(tensor.numel() for tensor in whole.values()):,} parameters in {len(whole)} tensors",
            "processes of the machine": env.local_world_size(),
        }
    )
    zero_1 = layout.pipeline_parallel_use_zero1_optimizer
    if sizes.pipeline > 1:
        pipeline.require_stages(model, sizes.pipeline)
        pipeline.num_microbatches(
            layout.pipeline_parallel_num_microbatches,
            batch_size=arguments.per_device_train_batch_size,
            num_stages=sizes.pipeline,
        )
    mesh = sizes.device_mesh(arguments.device.type, shard=zero_1)
    stage = shard(model, sizes, mesh, zero_1=zero_1)
    return None if stage is None else (stage, mesh["pipeline"])
