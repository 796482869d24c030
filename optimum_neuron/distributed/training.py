"""The steps of `Trainer` that differ where a model is spread over cores, as a mix-in before a class derived from it.

Data-parallel runs without ZeRO are upstream's (DDP), and so is `fsdp`. Everything else is a model of DTensors or a
stage of a pipeline; upstream knows the first, since it loads such models itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, Trainer
from transformers.trainer import SCHEDULER_NAME

from .. import env
from ..errors import ConfigError, refusal
from ..trainer.layout import fsdp_problems
from ..trainer.optimizer import NARROW, MasterWeights, narrow
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

    _whole: checkpoint.WholeModel | None = None
    """What the model had before this package took it apart; None where it did not."""
    _narrow: frozenset[str] = frozenset()
    """Names of its trainable parameters that had 16 bits."""
    _masters: MasterWeights | None = None
    """Of a model that is whole."""
    _pipeline: Pipeline | None = None
    model: Any

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        # Where arguments stand differs between trainers; the model is always first.
        model: Any = keywords.get("model", positional[0] if positional else None)
        args = next((value for value in (keywords.get("args"), *positional) if hasattr(value, "trn_config")), None)
        if args is None or not _spreads(model, args):
            super().__init__(*positional, **keywords)
            return
        if keywords.get("peft_config") is not None:
            # An adapter is taken apart with its model, so it has to be there.
            model = _with_adapter(model, keywords.pop("peft_config"))
            positional, keywords = _with_model(model, positional, keywords)
        core = _require_whole_model(model, args)
        self._whole = checkpoint.WholeModel.of(model)
        self._narrow = frozenset(
            name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.dtype in NARROW
        )
        stage = _lay_out(core, args, self._whole)
        # Accelerate is not to split it once more.
        args.fsdp_plugin_args = None
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
        checkpoint.load_weights(self.model, self._whole, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self._whole is None:
            super()._load_best_model()
        else:
            self._load_from_checkpoint(self.state.best_model_checkpoint)


def _spreads(model: Any, arguments: Any) -> bool:
    """Whether this package distributes the parameters of a run, and not upstream.

    DistributedDataParallel and accelerate reduce gradients in the dtype of their parameters, so 16-bit parameters of
    data-parallel runs are taken apart here too, where they are to have float32 gradients or master weights.
    """
    if arguments.trn_config.spreads_model:
        return True
    wide = arguments.optimizer_use_fp32_grad_acc or arguments.optimizer_use_master_weights
    return bool(arguments.world_size > 1 and wide and isinstance(model, torch.nn.Module) and narrow(model.parameters()))


def _with_model(model: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if "model" in keywords:
        return positional, {**keywords, "model": model}
    return (model, *positional[1:]), keywords


def _with_adapter(model: Any, config: Any) -> Any:
    from peft import get_peft_model

    return get_peft_model(model, config) if isinstance(model, PreTrainedModel) else model


def _require_whole_model(model: Any, arguments: Any) -> Any:
    """The model of transformers that is to be taken apart, without the adapter around it.

    Raises:
        ConfigError: no model of transformers, one that is in parts already, or an adapter that adds tokens.
    """
    adapter: Any = getattr(model, "active_peft_config", None)
    core = model if adapter is None else model.get_base_model()
    if not isinstance(core, PreTrainedModel):
        found, do = (
            f"a {type(model).__name__}",
            "load the whole model and pass it, in place of its name or of model_init",
        )
    elif core.is_distributed_loading_by_transformers:
        found, do = "a model in parts already", "load it without distributed_config"
    elif getattr(adapter, "is_prompt_learning", False):
        found, do = f"an adapter {adapter.peft_type.value}, which is no part of the model", "pass LoraConfig"
    else:
        return core
    raise ConfigError(
        refusal(
            asked=f"{_words(arguments)} of {type(model).__name__}",
            found=found,
            why="parameters of a whole model are split by their names before training begins",
            do=do,
        )
    )


def _words(arguments: Any) -> str:
    layout = arguments.trn_config
    asked = {
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
        "fsdp": layout.fsdp,
    }
    told = ", ".join(f"{name}={value}" for name, value in asked.items() if value is True or value > 1)
    return told or f"{arguments.world_size} processes with 16-bit parameters"


def _lay_out(model: Any, arguments: Any, whole: checkpoint.WholeModel) -> Any:
    """Distribute a model in place; the stage and the mesh of its pipeline, where there is one."""
    from . import pipeline
    from .shard import Sharding, shard

    layout = arguments.trn_config
    sizes = require_processes(layout, arguments.world_size)
    fsdp = arguments.fsdp_config if layout.fsdp else {}
    problems = fsdp_problems(fsdp)
    if problems:
        raise ConfigError("\n".join(problems))
    require_agreement(
        {
            "layout": str(layout),
            "per_device_train_batch_size": arguments.per_device_train_batch_size,
            "model": f"{sum(tensor.numel() for tensor in whole.tensors.values()):,} parameters in "
            f"{len(whole.tensors)} tensors",
            "processes of the machine": env.local_world_size(),
        }
    )
    if sizes.pipeline > 1:
        pipeline.require_stages(model, sizes.pipeline)
        pipeline.num_microbatches(
            layout.pipeline_parallel_num_microbatches,
            batch_size=arguments.per_device_train_batch_size,
            num_stages=sizes.pipeline,
        )
    sharding = Sharding(
        sizes=sizes,
        splits_tokens=layout.sequence_parallel_enabled,
        splits_states=layout.pipeline_parallel_use_zero1_optimizer or layout.fsdp,
        frees_weights=layout.fsdp and fsdp.get("reshard_after_forward", True),
        master_weights=arguments.optimizer_use_master_weights,
        float32_gradients=arguments.optimizer_use_fp32_grad_acc,
    )
    mesh = sizes.device_mesh(arguments.device.type, shard=sharding.splits_states)
    stage = shard(model, sharding, mesh)
    return None if stage is None else (stage, mesh["pipeline"])
