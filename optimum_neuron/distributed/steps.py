"""The steps of `Trainer` that differ where a model is in stages, or sequences in parts, as a mix-in before a class
derived from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer

from ..errors import ConfigError, refusal

if TYPE_CHECKING:
    from transformers import Trainer as _Base

    from .context import ContextParallel
    from .pipeline import Pipeline
else:
    _Base = object


class StagedTraining(_Base):
    """Trains and evaluates through the stages of a pipeline, or on parts of sequences, where there are some."""

    model: Any
    losses_of_tokens: tuple[type, ...] = ()
    """Other classes than upstream's whose loss is a sum over tokens, divided by the number of labels of all processes.
    """
    _pipeline: Pipeline | None = None
    _context: ContextParallel | None = None

    def _make_pipeline(self, stage: Any, mesh: Any) -> Pipeline:
        from .pipeline import Pipeline, num_microbatches

        self._require_loss_of_tokens("pipeline_parallel_size")
        num_parts = num_microbatches(
            self.args.pipeline_parallel_num_microbatches,
            batch_size=self.args.per_device_train_batch_size,
            num_stages=mesh.size(),
        )
        if self.args.torch_compile:
            # Upstream compiles the model, whose forward a stage does not call.
            stage.compile(backend=self.args.torch_compile_backend, mode=self.args.torch_compile_mode, dynamic=False)
        return Pipeline(stage, mesh, loss=self._loss_of_logits, num_microbatches=num_parts.value)

    def _require_loss_of_tokens(self, asked: str, *known: type) -> None:
        """Refuse a loss that is not a sum over tokens.

        Args:
            asked: field of the arguments.
            known: classes whose loss is one.

        Raises:
            ConfigError: what makes it another one.
        """
        changed = {
            "label_smoothing_factor": self.label_smoother is not None,
            "compute_loss_func": self.compute_loss_func is not None,
            "average_tokens_across_devices=False": not self.args.average_tokens_across_devices,
            **{f"{kind.__name__}.compute_loss": True for kind in self._other_losses(*known)},
        }
        if any(changed.values()):
            raise ConfigError(
                refusal(
                    asked=f"{asked} with {', '.join(name for name, is_so in changed.items() if is_so)}",
                    found="a loss that is not the model's",
                    why="the loss of a part of a batch is computed from its logits and labels alone",
                    do="leave it out, or use tensor_parallel_size or zero_1",
                )
            )

    def _other_losses(self, *known: type) -> list[type]:
        """Classes of this trainer that compute a loss of their own, other than those known."""
        known = (*known, StagedTraining, Trainer)
        return [kind for kind in type(self).__mro__ if "compute_loss" in vars(kind) and kind not in known]

    def _loss_of_logits(self, logits: torch.Tensor, shift_labels: torch.Tensor, num_items: Any) -> torch.Tensor:
        vocab_size = self.model.config.get_text_config().vocab_size
        loss = self.model.loss_function(
            logits=logits, labels=None, shift_labels=shift_labels, vocab_size=vocab_size, num_items_in_batch=num_items
        )
        # As `Trainer.compute_loss`: the labels of all batches are counted, and gradients are averaged over batches.
        loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        return loss if self._context is None else self._context.sum(loss)

    def compute_loss(self, model: Any, inputs: Any, *positional: Any, **keywords: Any) -> Any:
        """Upstream's loss; of parts of sequences, their sum."""
        found = super().compute_loss(model, inputs, *positional, **keywords)
        if self._context is None or not self._context.is_running:
            return found
        return (self._context.sum(found[0]), *found[1:]) if isinstance(found, tuple) else self._context.sum(found)

    def _prepare_context_parallel_inputs(self, model: Any, inputs: Any) -> Any:
        if self._context is None:
            return super()._prepare_context_parallel_inputs(model, inputs)
        return self._context.running, self._context.split(inputs)

    @contextlib.contextmanager
    def _parts(self, model: Any, inputs: Any) -> Iterator[Any]:
        """What this core has of a batch, while its loss is computed and gone back from."""
        running, parts = self._prepare_context_parallel_inputs(model, self._prepare_inputs(inputs))
        with running(), self.compute_loss_context_manager():
            yield parts

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one batch; through the stages where there is a pipeline."""
        if self._pipeline is None:
            return super().training_step(model, inputs, num_items_in_batch)
        model.train()
        with self._parts(model, inputs) as parts:
            return self._pipeline.train(parts, num_items_in_batch)

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, *positional: Any, **keywords: Any
    ) -> Any:
        """One batch of an evaluation; through the stages where there is a pipeline."""
        if self._pipeline is None and self._context is None:
            return super().prediction_step(model, inputs, prediction_loss_only, *positional, **keywords)
        inputs = self._prepare_inputs(inputs)
        labels = inputs.get("labels")
        if self._pipeline is not None:
            num_items = None if labels is None else self._get_num_items_in_batch([inputs], self.args.device)
            with torch.no_grad(), self._parts(model, inputs) as parts:
                logits, loss = self._pipeline.evaluate(parts, num_items)
        elif labels is not None:
            loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, *positional, **keywords)
        else:
            # Upstream splits what has labels.
            with self._parts(model, inputs) as parts:
                loss, logits, _ = super().prediction_step(model, parts, prediction_loss_only, *positional, **keywords)
        if prediction_loss_only:
            return loss, None, None
        if self._context is not None:
            logits = self._context.join(logits, num_tokens=inputs["input_ids"].shape[1])
        return loss, logits, labels

    def _once_more(self, model: Any, inputs: Any, num_items_in_batch: Any, *, backward: bool = False) -> None:
        """A batch once more, for the search of what went wrong."""
        with self._parts(model, inputs) as parts:
            if self._pipeline is not None:
                # Stages know the shapes of a training batch: for others they first run on memory as it is.
                with torch.enable_grad():
                    self._pipeline.train(parts, num_items_in_batch)
                return
            loss = self.compute_loss(model, parts, num_items_in_batch=num_items_in_batch)
            if backward:
                loss.backward()

    def _first_found(self, found: Any) -> Any:
        """Of what each stage, and each core of a sequence, found: the first that is something."""
        for group in (shared.group for shared in (self._pipeline, self._context) if shared is not None):
            every: list[Any] = [None] * group.size()
            torch.distributed.all_gather_object(every, found, group=group)
            found = next((other for other in every if other), found)
        return found

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
