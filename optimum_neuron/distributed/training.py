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
from .gather import gather_for_metrics
from .mesh import require_agreement, require_processes
from .states import ShardedCheckpoints
from .steps import StagedTraining
from .whole import WholeModel


class DistributedTraining(StagedTraining, ShardedCheckpoints):
    """Lays a model out over cores before `Trainer` sees it.

    Raises:
        ConfigError: layouts that this model, or this number of processes, cannot have.
    """

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
        core = require_whole_model(model, _words(args))
        self._whole = WholeModel.of(model)
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

    def create_accelerator_and_postprocess(self) -> None:
        """Upstream's accelerator, which gathers results once from processes that see the same batch."""
        super().create_accelerator_and_postprocess()
        num_same = self.get_tp_size()
        if self._whole is not None and num_same > 1:
            gather = functools.partial(gather_for_metrics, self.accelerator, num_same=num_same)
            self.accelerator.gather_for_metrics = gather
            self.gather_function = functools.partial(gather, use_gather_object=self.args.eval_use_gather_object)


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
        "zero_1": layout.pipeline_parallel_use_zero1_optimizer,
        "fsdp": layout.fsdp,
    }
    told = ", ".join(f"{name}={value}" for name, value in asked.items() if value is True or value > 1)
    return told or f"{arguments.world_size} processes with 16-bit parameters"


def _lay_out(model: Any, arguments: Any, whole: WholeModel) -> Any:
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
