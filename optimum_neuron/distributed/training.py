"""Layouts for `Trainer`, as a mix-in before a class derived from it.

Data-parallel runs without ZeRO are upstream's (DDP), and so is `fsdp`, in float32. Everything else is a model of
DTensors or a stage of a pipeline; upstream knows the first, since it loads such models itself. `steps.py` and
`states.py` have what differs in training and in checkpoints.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import PreTrainedModel

from .. import env
from ..errors import ConfigError, refusal
from ..trainer.layout import fsdp_problems
from ..trainer.optimizer import NARROW, narrow
from .context import ContextParallel, require_context
from .gather import gather_for_metrics
from .mesh import MeshSizes, require_agreement, require_processes
from .states import ShardedCheckpoints
from .steps import StagedTraining
from .whole import WholeModel

_AGREED = (
    *("max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "seed"),
    *("learning_rate", "lr_scheduler_type", "weight_decay", "max_grad_norm", "optim", "bf16", "torch_compile"),
    *("save_strategy", "save_steps", "eval_strategy", "eval_steps", "load_best_model_at_end"),
)
"""Arguments without which processes would wait for each other, or train apart."""


class DistributedTraining(StagedTraining, ShardedCheckpoints):
    """Lays a model out over cores before `Trainer` sees it.

    Raises:
        ConfigError: layouts that this model, or this number of processes, cannot have.
    """

    def __init__(self, *positional: Any, **keywords: Any) -> None:
        # Where arguments stand differs between trainers; the model is always first.
        model: Any = keywords.get("model", positional[0] if positional else None)
        args = next((value for value in (keywords.get("args"), *positional) if hasattr(value, "trn_config")), None)
        if args is not None and args.world_size > 1:
            require_agreement(_facts(model, args))
        if args is None or not _spreads(model, args):
            if args is not None and isinstance(model, torch.nn.Module):
                _wrap_blocks(model, args)
            super().__init__(*positional, **keywords)
            return
        if keywords.get("peft_config") is not None:
            # An adapter is taken apart with its model, so it has to be there.
            model = _with_adapter(model, keywords.pop("peft_config"))
            positional, keywords = _with_model(model, positional, keywords)
        core = require_whole_model(model, _words(args))
        self._whole = WholeModel.of(model)
        self._narrow = frozenset(
            name
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and parameter.dtype in NARROW
        )
        sizes, stage = _lay_out(core, args)
        # Accelerate is not to split it once more.
        args.fsdp_plugin_args = None
        # Upstream refuses to save such models with their optimizer, because it cannot; `checkpoint.py` can.
        only_model, args.save_only_model = args.save_only_model, True
        try:
            super().__init__(*positional, **keywords)
        finally:
            args.save_only_model = only_model
        if hasattr(self, "_tp_size"):
            # TRL divides the tokens that it gathers by the cores of a batch; `_gather_once` has counted them once.
            self._tp_size = 1
        if stage is not None:
            self._pipeline = self._make_pipeline(*stage)
        if sizes.context > 1:
            self._require_loss_of_tokens("context_parallel_size", *self.losses_of_tokens)
            self._context = ContextParallel(core, sizes.context_mesh(args.device.type))

    def create_accelerator_and_postprocess(self) -> None:
        """Upstream's accelerator, which gathers results once from processes that see the same batch."""
        super().create_accelerator_and_postprocess()
        if self._whole is not None and self.get_tp_size() > 1:
            self.accelerator.gather_for_metrics = self._gather_once
            self.gather_function = functools.partial(
                self._gather_once, use_gather_object=self.args.eval_use_gather_object
            )

    def _gather_once(self, data: Any, use_gather_object: bool = False) -> Any:
        num_same = self.get_tp_size()
        if self._context is not None and self._context.is_running:
            # What a loss tells of its batch (TRL's metrics) is of each part.
            num_same //= self.args.trn_config.context_parallel_size
        return gather_for_metrics(self.accelerator, data, use_gather_object, num_same=num_same)


def _spreads(model: Any, arguments: Any) -> bool:
    """Whether this package distributes the parameters of a run, and not upstream.

    DistributedDataParallel and accelerate reduce gradients in the dtype of their parameters, so 16-bit parameters of
    data-parallel runs are taken apart here too, where they are to have float32 gradients or master weights.
    """
    if arguments.trn_config.spreads_model:
        return True
    wide = arguments.optimizer_use_fp32_grad_acc or arguments.optimizer_use_master_weights
    return bool(arguments.world_size > 1 and wide and isinstance(model, torch.nn.Module) and narrow(model.parameters()))


def _facts(model: Any, arguments: Any) -> dict[str, object]:
    """What has to be the same in all processes of a run."""
    facts = {name: getattr(arguments, name) for name in _AGREED}
    facts |= {"layout": str(arguments.trn_config), "processes of the machine": env.local_world_size()}
    if isinstance(model, torch.nn.Module):
        sizes = [parameter.numel() for parameter in model.parameters()]
        facts["model"] = f"{type(model).__name__} with {sum(sizes):,} parameters in {len(sizes)} tensors"
    return facts


def _wrap_blocks(model: torch.nn.Module, arguments: Any) -> None:
    """Let accelerate's FSDP2 split repeated blocks.

    By itself it takes all that transformers wants to keep on one device, BERT's embeddings too, which it splits once
    more as embeddings and then cannot.
    """
    from .shard import layers_of

    wrapped = arguments.fsdp_plugin_args
    if wrapped is None or "transformer_cls_names_to_wrap" in wrapped or "min_num_params" in wrapped:
        return
    kinds = sorted({type(layer).__name__ for layer in layers_of(model)})
    if kinds:
        wrapped["transformer_cls_names_to_wrap"] = kinds


def _with_model(model: Any, positional: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if "model" in keywords:
        return positional, {**keywords, "model": model}
    return (model, *positional[1:]), keywords


def _with_adapter(model: Any, config: Any) -> Any:
    from peft import get_peft_model

    return get_peft_model(model, config) if isinstance(model, PreTrainedModel) else model


def require_whole_model(model: Any, asked: str) -> Any:
    """The model of transformers that is to be taken apart, without the adapter around it.

    Args:
        model: as a trainer was given it.
        asked: the layout, in words.

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
            asked=f"{asked} of {type(model).__name__}",
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
        "context_parallel_size": layout.context_parallel_size,
        "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
        "fsdp": layout.fsdp,
    }
    told = ", ".join(f"{name}={value}" for name, value in asked.items() if value is True or value > 1)
    return told or f"{arguments.world_size} processes with 16-bit parameters"


def _lay_out(model: Any, arguments: Any) -> tuple[MeshSizes, Any]:
    """Distribute a model in place; how, and the stage and the mesh of its pipeline, where there is one."""
    from . import pipeline
    from .shard import Sharding, shard

    layout = arguments.trn_config
    sizes = require_processes(layout, arguments.world_size)
    fsdp = arguments.fsdp_config if layout.fsdp else {}
    problems = fsdp_problems(fsdp)
    if problems:
        raise ConfigError("\n".join(problems))
    if sizes.context > 1:
        require_context(model, sizes.context)
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
    return sizes, None if stage is None else (stage, mesh["pipeline"])
