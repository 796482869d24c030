"""Distributes a trainer's model over cores: one call changes the model in place and returns what its training needs.

Data-parallel runs without ZeRO are upstream's (DDP), and so is `fsdp`, in float32. Every other layout is a model of
DTensors or a stage of a pipeline; upstream knows the first, since it loads such models itself. It does not depend on
trainers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from ..base import env
from ..base.foreign import module_facts
from ..base.transformers_types import TrainingArguments
from ..errors import ConfigError
from . import pipeline
from .context import ContextParallel, require_context
from .dtypes import NARROW, narrow
from .layout import require_fsdp_config
from .mesh import MeshSizes, require_processes
from .shard import Sharding, layers_of, shard
from .whole import WholeModel

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

_AGREED = (
    *("max_steps", "num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "seed"),
    *("learning_rate", "lr_scheduler_type", "weight_decay", "max_grad_norm", "optim", "bf16", "torch_compile"),
    *("save_strategy", "save_steps", "eval_strategy", "eval_steps", "load_best_model_at_end"),
)
"""Arguments without which processes would wait for each other, or train apart."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistributedModel:
    """How a trainer's model is distributed; the defaults are those of a model that upstream trains as it is."""

    whole: WholeModel | None = None
    """The model before it was split."""
    narrow: frozenset[str] = frozenset()
    """Names of the trainable parameters that had 16 bits."""
    sizes: MeshSizes = MeshSizes()
    stage: pipeline.Stage | None = None
    stages: DeviceMesh | None = None
    pipeline: pipeline.Pipeline | None = None
    """Runs batches through the stages; the trainer adds it, with its loss."""
    context: ContextParallel | None = None
    """Splits sequences; the trainer adds it."""


def is_distributed_here(model: nn.Module, arguments: TrainingArguments) -> bool:
    """Return whether this package distributes the parameters of a run, and not upstream.

    DistributedDataParallel and accelerate reduce gradients in the dtype of their parameters, so 16-bit parameters of
    data-parallel runs are distributed here too if they need float32 gradients or master weights.
    """
    if arguments.trn_config.spreads_model:
        return True
    wide = arguments.optimizer_use_fp32_grad_acc or arguments.optimizer_use_master_weights
    return bool(arguments.world_size > 1 and wide and isinstance(model, torch.nn.Module) and narrow(model.parameters()))


def distribute(model: nn.Module, arguments: TrainingArguments) -> DistributedModel:
    """Distribute a model in place; every process calls it with the whole model on the host.

    Args:
        model: one of transformers, in which there may be an adapter.
        arguments: `NeuronTrainingArguments`.
    """
    core = require_whole_model(model, _layout_text(arguments))
    whole = WholeModel.of(model)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    narrow_names = frozenset(name for name, parameter in trained.items() if parameter.dtype in NARROW)
    layout = arguments.trn_config
    sizes = require_processes(layout, arguments.world_size)
    fsdp = arguments.fsdp_config if layout.fsdp else {}
    require_fsdp_config(fsdp)
    if sizes.context > 1:
        require_context(core, sizes.context)
    if sizes.pipeline > 1:
        pipeline.require_stages(core, sizes.pipeline)
        num_microbatches(arguments, sizes.pipeline)
    sharding = Sharding(
        sizes=sizes,
        splits_tokens=layout.sequence_parallel_enabled,
        splits_states=layout.pipeline_parallel_use_zero1_optimizer or layout.fsdp,
        frees_weights=layout.fsdp and fsdp.get("reshard_after_forward", True),
        master_weights=arguments.optimizer_use_master_weights,
        float32_gradients=arguments.optimizer_use_fp32_grad_acc,
    )
    mesh = sizes.device_mesh(arguments.device.type, shard=sharding.splits_states)
    stage = shard(core, sharding, mesh)
    stages = None if stage is None else mesh["pipeline"]
    return DistributedModel(whole=whole, narrow=narrow_names, sizes=sizes, stage=stage, stages=stages)


def num_microbatches(arguments: TrainingArguments, num_stages: int) -> int:
    """Return the number of microbatches of a run."""
    requested, batch_size = arguments.pipeline_parallel_num_microbatches, arguments.per_device_train_batch_size
    return pipeline.num_microbatches(requested, batch_size=batch_size, num_stages=num_stages)


def shared_facts(model: nn.Module, arguments: TrainingArguments) -> dict[str, object]:
    """Return the values that have to be the same in all processes of a run."""
    facts = {name: getattr(arguments, name) for name in _AGREED}
    facts |= {"layout": str(arguments.trn_config), "processes of the machine": env.local_world_size()}
    if isinstance(model, torch.nn.Module):
        sizes = [parameter.numel() for parameter in model.parameters()]
        facts["model"] = f"{type(model).__name__} with {sum(sizes):,} parameters in {len(sizes)} tensors"
    return facts


def wrap_blocks(model: torch.nn.Module, arguments: TrainingArguments) -> None:
    """Let accelerate's FSDP2 split repeated blocks.

    By itself it moves every module that transformers wants on one device, BERT's embeddings too, which it splits once
    more as embeddings and then cannot.
    """
    plugin = arguments.fsdp_plugin_args
    if plugin is None or "transformer_cls_names_to_wrap" in plugin or "min_num_params" in plugin:
        return
    kinds = sorted({type(layer).__name__ for layer in layers_of(model)})
    if kinds:
        plugin["transformer_cls_names_to_wrap"] = kinds


def require_whole_model(model: nn.Module, layout: str) -> Any:
    """Return the transformers model to distribute, without the adapter around it."""
    adapter: Any = module_facts(model).active_peft_config
    core = model if adapter is None else model.get_base_model()
    if not isinstance(core, PreTrainedModel):
        problem = f"{layout} needs a loaded transformers model, not a {type(model).__name__}."
        hint = "Load the whole model and pass it, instead of its name or model_init."
    elif core.is_distributed_loading_by_transformers:
        problem = f"{layout} needs a whole model, but this {type(model).__name__} is distributed already."
        hint = "Load it without distributed_config."
    elif adapter is not None and adapter.is_prompt_learning:
        problem = f"{layout} does not support the adapter {adapter.peft_type.value}: it is not part of the model."
        hint = "Pass LoraConfig."
    else:
        return core
    raise ConfigError(problem, hint=hint, option="model", layout=layout, type=type(model).__name__)


def _layout_text(arguments: TrainingArguments) -> str:
    layout = arguments.trn_config
    options = {**layout.sizes(), "zero_1": layout.pipeline_parallel_use_zero1_optimizer, "fsdp": layout.fsdp}
    text = ", ".join(f"{name}={value}" for name, value in options.items() if value is True or value > 1)
    return text or f"Training 16-bit parameters on {arguments.world_size} processes"
