"""The steps of `Trainer` that differ if a model is in stages, or sequences in parts, as a mix-in.

It reads one attribute of the trainer, `_distributed` (`distributed/distribute.py`), and sets its pipeline and context.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from transformers import Trainer

from ..distributed import ContextParallel, DistributedModel, Pipeline, gather_for_metrics, num_microbatches
from ..errors import ConfigError

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer as _Base
else:
    _Base = object


class DistributedSteps(_Base):
    """Trains and evaluates through the stages of a pipeline, or on parts of sequences, if there are any."""

    model: Any
    losses_of_tokens: tuple[type, ...] = ()
    """Classes, other than upstream's, whose loss is a sum over tokens divided by the labels of all processes."""
    _distributed = DistributedModel()

    def _start_layout(self) -> None:
        """Make the pipeline and the context of a distributed model, which need the trainer's loss."""
        stage, stages, sizes = self._distributed.stage, self._distributed.stages, self._distributed.sizes
        if stage is not None and stages is not None:
            self._require_loss_of_tokens("pipeline_parallel_size")
            if self.args.torch_compile:
                # Upstream compiles the model, whose forward a stage does not call.
                backend, mode = self.args.torch_compile_backend, self.args.torch_compile_mode
                stage.compile(backend=backend, mode=mode, dynamic=False)
            num_parts = num_microbatches(self.args, stages.size())
            pipeline = Pipeline(stage, stages, loss=self._loss_of_logits, num_microbatches=num_parts)
            self._distributed = dataclasses.replace(self._distributed, pipeline=pipeline)
        if sizes.context > 1:
            self._require_loss_of_tokens("context_parallel_size", *self.losses_of_tokens)
            core = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
            context = ContextParallel(core, sizes.context_mesh(self.args.device.type))
            self._distributed = dataclasses.replace(self._distributed, context=context)

    def _require_loss_of_tokens(self, option: str, *known: type) -> None:
        """Reject a loss that is no sum over tokens, unless a known class computes it."""
        changes = {
            "label_smoothing_factor": self.label_smoother is not None,
            "compute_loss_func": self.compute_loss_func is not None,
            "average_tokens_across_devices=False": not self.args.average_tokens_across_devices,
            **{f"{kind.__name__}.compute_loss": True for kind in self._other_losses(*known)},
        }
        settings = [name for name, is_changed in changes.items() if is_changed]
        if settings:
            message = f"{option} needs the model's own loss, but {', '.join(settings)} changes it."
            hint = "Remove the setting, or use tensor_parallel_size or zero_1."
            raise ConfigError(message, hint=hint, option=option, settings=settings)

    def _other_losses(self, *known: type) -> list[type]:
        """Return the classes of this trainer that compute their own loss, other than the known ones."""
        known = (*known, DistributedSteps, Trainer)
        return [kind for kind in type(self).__mro__ if "compute_loss" in vars(kind) and kind not in known]

    def _loss_of_logits(
        self, logits: torch.Tensor, shift_labels: torch.Tensor, num_items: torch.Tensor | int | None
    ) -> torch.Tensor:
        vocab_size = self.model.config.get_text_config().vocab_size
        loss = self.model.loss_function(
            logits=logits, labels=None, shift_labels=shift_labels, vocab_size=vocab_size, num_items_in_batch=num_items
        )
        # As `Trainer.compute_loss`: the labels of all batches are counted, and gradients are averaged over batches.
        loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        context = self._distributed.context
        return loss if context is None else context.sum(loss)

    def compute_loss(self, model: nn.Module, inputs: Mapping[str, Any], *positional: object, **keywords: object) -> Any:
        """Return upstream's loss; of parts of sequences, their sum."""
        loss, context = super().compute_loss(model, inputs, *positional, **keywords), self._distributed.context
        if context is None or not context.is_running:
            return loss
        return (context.sum(loss[0]), *loss[1:]) if isinstance(loss, tuple) else context.sum(loss)

    def _prepare_context_parallel_inputs(self, model: nn.Module, inputs: Mapping[str, Any]) -> Any:
        context = self._distributed.context
        if context is None:
            return super()._prepare_context_parallel_inputs(model, inputs)
        return context.running, context.split(inputs)

    @contextlib.contextmanager
    def _parts(self, model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[Any]:
        """Give this core's part of a batch, for its forward and backward pass."""
        running, parts = self._prepare_context_parallel_inputs(model, self._prepare_inputs(inputs))
        with running(), self.compute_loss_context_manager():
            yield parts

    def _train_batch(
        self, model: nn.Module, inputs: Mapping[str, Any], num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        """Run forward and backward of one batch; through the stages if there is a pipeline."""
        if self._distributed.pipeline is None:
            return super().training_step(model, inputs, num_items_in_batch)
        model.train()
        with self._parts(model, inputs) as parts:
            return self._distributed.pipeline.train(parts, num_items_in_batch)

    def _predict_batch(
        self, model: nn.Module, inputs: Mapping[str, Any], prediction_loss_only: bool, *positional: Any, **keywords: Any
    ) -> Any:
        """Evaluate one batch; through the stages if there is a pipeline."""
        pipeline, context = self._distributed.pipeline, self._distributed.context
        if pipeline is None and context is None:
            return super().prediction_step(model, inputs, prediction_loss_only, *positional, **keywords)
        inputs = self._prepare_inputs(inputs)
        labels = inputs.get("labels")
        if pipeline is not None:
            num_items = None if labels is None else self._get_num_items_in_batch([inputs], self.args.device)
            with torch.no_grad(), self._parts(model, inputs) as parts:
                logits, loss = pipeline.evaluate(parts, num_items)
        elif labels is not None:
            loss, logits, labels = super().prediction_step(model, inputs, prediction_loss_only, *positional, **keywords)
        else:
            # Upstream splits only batches with labels.
            with self._parts(model, inputs) as parts:
                loss, logits, _ = super().prediction_step(model, parts, prediction_loss_only, *positional, **keywords)
        if prediction_loss_only:
            return loss, None, None
        if context is not None:
            logits = context.join(logits, num_tokens=inputs["input_ids"].shape[1])
        return loss, logits, labels

    def _once_more(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        num_items_in_batch: torch.Tensor | int | None,
        *,
        backward: bool = False,
    ) -> None:
        """Run a batch again, to search for a number that is not finite."""
        with self._parts(model, inputs) as parts:
            if self._distributed.pipeline is not None:
                # Stages know the shapes of a training batch: for others they first run on memory as it is.
                with torch.enable_grad():
                    self._distributed.pipeline.train(parts, num_items_in_batch)
                return
            loss = self.compute_loss(model, parts, num_items_in_batch=num_items_in_batch)
            if backward:
                loss.backward()

    def _first_of_processes(self, result: object) -> Any:
        """Return the first result that is not empty, of the stages and of the cores of a sequence."""
        exchanges = (self._distributed.pipeline, self._distributed.context)
        for group in (exchange.group for exchange in exchanges if exchange is not None):
            results: list[Any] = [None] * group.size()
            torch.distributed.all_gather_object(results, result, group=group)
            result = next((other for other in results if other), result)
        return result

    def _sync_replicated_trainable_parameters(self, model: nn.Module) -> None:
        if self._distributed.pipeline is None:
            super()._sync_replicated_trainable_parameters(model)

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        if self._distributed.pipeline is None:
            return super()._clip_grad_norm(model)
        return self._distributed.pipeline.clip(self.args.max_grad_norm)

    def create_accelerator_and_postprocess(self) -> None:
        """Create upstream's accelerator; it gathers results once from processes that see the same batch."""
        super().create_accelerator_and_postprocess()
        if self._distributed.whole is not None and self.get_tp_size() > 1:
            self.accelerator.gather_for_metrics = self._gather_once
            self.gather_function = functools.partial(
                self._gather_once, use_gather_object=self.args.eval_use_gather_object
            )

    def _gather_once(self, data: object, use_gather_object: bool = False) -> Any:
        num_same, context = self.get_tp_size(), self._distributed.context
        if context is not None and context.is_running:
            # Results that a loss has of its batch (TRL's metrics) are of each part.
            num_same //= self._distributed.sizes.context
        return gather_for_metrics(self.accelerator, data, use_gather_object, num_same=num_same)
