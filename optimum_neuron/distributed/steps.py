"""The steps of `Trainer` that differ where a model is in stages, as a mix-in before a class derived from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer

from ..errors import ConfigError, refusal

if TYPE_CHECKING:
    from transformers import Trainer as _Base

    from .pipeline import Pipeline
else:
    _Base = object


class StagedTraining(_Base):
    """Trains and evaluates through the stages of a pipeline, where there is one."""

    model: Any
    _pipeline: Pipeline | None = None

    def _make_pipeline(self, stage: Any, mesh: Any) -> Pipeline:
        from .pipeline import Pipeline, num_microbatches

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
        num_parts = num_microbatches(
            self.args.pipeline_parallel_num_microbatches,
            batch_size=self.args.per_device_train_batch_size,
            num_stages=mesh.size(),
        )
        if self.args.torch_compile:
            # Upstream compiles the model, whose forward a stage does not call.
            stage.compile(backend=self.args.torch_compile_backend, mode=self.args.torch_compile_mode, dynamic=False)
        return Pipeline(stage, mesh, loss=self._loss_of_logits, num_microbatches=num_parts.value)

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
        num_items = self._get_num_items_in_batch([inputs], self.args.device) if "labels" in inputs else None
        with torch.no_grad(), self.compute_loss_context_manager():
            logits, loss = self._pipeline.evaluate(inputs, num_items)
        return (loss, None, None) if prediction_loss_only else (loss, logits, inputs.get("labels"))

    def _once_more(self, model: Any, inputs: Any, num_items_in_batch: Any, *, backward: bool = False) -> None:
        """A batch once more, for the search of what went wrong."""
        inputs = self._prepare_inputs(inputs)
        with self.compute_loss_context_manager():
            if self._pipeline is not None:
                # Stages know the shapes of a training batch: for others they first run on memory as it is.
                with torch.enable_grad():
                    self._pipeline.train(inputs, num_items_in_batch)
                return
            loss = self.compute_loss(model, inputs, num_items_in_batch=num_items_in_batch)
        if backward:
            loss.backward()

    def _first_of_stages(self, found: Any) -> Any:
        """Of what each stage found, the first that is something."""
        if self._pipeline is None:
            return found
        every: list[Any] = [None] * self._pipeline.group.size()
        torch.distributed.all_gather_object(every, found, group=self._pipeline.group)
        return next((other for other in every if other), found)

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
