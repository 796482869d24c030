"""A model's parameters as DTensors: split over the cores that share layers, split or replicated over the others.

Every process starts with the whole model on the host and keeps its part on its core. It does not depend on trainers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

from ..base.foreign import module_facts
from ..errors import ConfigError
from .dtypes import NARROW
from .mesh import MeshSizes
from .pipeline import Absent, Stage, cut
from .plans import expand, tensor_plan
from .styles import JoinedResult, SplitTokens

if TYPE_CHECKING:
    from torch import nn


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model is distributed."""

    sizes: MeshSizes
    splits_tokens: bool = False
    """Whether cores that share layers divide the tokens between them (`sequence_parallel`)."""
    splits_states: bool = False
    """Whether data-parallel processes split optimizer states and gradients (`zero_1`, `fsdp`), or are replicas."""
    frees_weights: bool = False
    """Whether they split the weights too, and gather those of a layer for each pass (`fsdp`)."""
    master_weights: bool = True
    """Whether the optimizer has 16-bit parameters in float32."""
    float32_gradients: bool = True
    """Whether gradients of 16-bit parameters are accumulated and summed over processes in float32."""


def shard(model: nn.Module, sharding: Sharding, mesh: DeviceMesh) -> Stage | None:
    """Distribute a model in place; return the stage of its pipeline, if there is one.

    Args:
        model: Full transformers model on the host, possibly with adapters; weights are those of rank 0 afterwards.
        mesh: of `MeshSizes.device_mesh`.
    """
    sizes = sharding.sizes
    plan: Mapping[str, str] = {}
    if sizes.tensor > 1:
        plan = tensor_plan(model, size=sizes.tensor, splits_tokens=sharding.splits_tokens)
        expand(model, plan)
    policy = mixed_precision(model, sharding)
    take_weights_of_rank_0(model)
    stage = None
    if sizes.pipeline > 1:
        stage = cut(model, index=mesh["pipeline"].get_local_rank(), num_stages=sizes.pipeline)
    if plan:
        _split_layers(model, plan, mesh["tensor"], splits_tokens=sharding.splits_tokens)
    model.to(torch.device("neuron", torch.neuron.current_device()))
    if sizes.replicas > 1 or policy is not None:
        _split_data(model, stage, sharding, mesh, policy)
    _mark_as_distributed(model, sharding, mesh)
    return stage


def mixed_precision(model: torch.nn.Module, sharding: Sharding) -> MixedPrecisionPolicy | None:
    """Return how FSDP2 holds and reduces 16-bit parameters; None if none of them is trained.

    With master weights the parameters become float32 and layers get them in 16 bits: FSDP2 splits the weights that the
    optimizer steps on (torch docs, `MixedPrecisionPolicy`).
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    dtypes = {parameter.dtype for parameter in trained}
    wide = sharding.master_weights, sharding.float32_gradients
    if not dtypes.intersection(NARROW) or not any(wide):
        return None
    if len(dtypes) > 1:
        names = sorted(str(dtype) for dtype in dtypes)
        message = f"Several processes cannot train parameters of several dtypes ({', '.join(names)})."
        raise ConfigError(message, hint="Load the model in one dtype, or in float32 with bf16=True.", dtypes=names)
    (dtype,) = dtypes
    if sharding.master_weights:
        for parameter in trained:
            parameter.data = parameter.data.float()
    return MixedPrecisionPolicy(
        param_dtype=dtype if sharding.master_weights else None,
        reduce_dtype=torch.float32 if sharding.float32_gradients else dtype,
        cast_forward_inputs=False,
    )


def _split_layers(model: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh, *, splits_tokens: bool) -> None:
    _untie(model)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    absent = {name for name, module in model.named_modules() if isinstance(module, Absent)}
    styles = {name: style for name, style in expand(model, plan).items() if name not in absent}
    apply_tensor_parallelism(model, mesh, styles)
    for name, parameter in model.named_parameters():
        # Upstream's style of norms makes new parameters, which would all be trained.
        parameter.requires_grad_(name in trained)
    if not absent:
        model.tie_weights()
    if splits_tokens:
        layers = layers_of(model)
        SplitTokens().install_forward(layers[0], mesh)
        JoinedResult().install_forward(layers[-1], mesh)


def _split_data(
    model: nn.Module, stage: Stage | None, sharding: Sharding, mesh: DeviceMesh, policy: MixedPrecisionPolicy | None
) -> None:
    if sharding.sizes.tensor > 1:
        # Norms of gradients are summed over both at once; the mesh remembers the joint group.
        mesh["shard", "tensor"]._flatten()
    # Gathered for the forward pass, and kept for the backward pass: ZeRO-1 splits states, not computation.
    options: dict[str, Any] = {"mesh": mesh["replicate", "shard"], "reshard_after_forward": sharding.frees_weights}
    if policy is not None:
        options["mp_policy"] = policy
    for layer in layers_of(model):
        fully_shard(layer, **options)
    fully_shard(stage or model, **options)
    # Lets `Trainer` reduce gradients once for several batches; a schedule does so for the parts of one.
    model._is_fsdp_managed_module = stage is None


def layers_of(model: nn.Module) -> list[torch.nn.Module]:
    """Return the repeated blocks of a model, which transformers names in `_no_split_modules`."""
    names = set(module_facts(model)._no_split_modules or ())
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return [layer for blocks in lists for layer in blocks if type(layer).__name__ in names]


def take_weights_of_rank_0(model: torch.nn.Module) -> None:
    """Give every process the weights of rank 0, as DistributedDataParallel does."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, src=0)


def _untie(model: nn.Module) -> None:
    """Untie the head while a plan that names both tensors is applied."""
    head = model.get_output_embeddings()
    head = module_facts(head).base_layer or head
    weight = module_facts(head).weight
    is_tied = module_facts(model.get_input_embeddings()).weight is weight
    if weight is not None and is_tied:
        head.weight = torch.nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)


def _mark_as_distributed(model: nn.Module, sharding: Sharding, mesh: DeviceMesh) -> None:
    """Set what `from_pretrained(distributed_config=...)` sets: transformers reads it to wrap, scale, and save."""
    # Stages see the same batch, and cores of a sequence do, as cores that share layers: transformers knows only these.
    same_batch, num_batches = sharding.sizes.processes_per_batch, sharding.sizes.data
    splits = sharding.splits_states
    data = {"fsdp_size": num_batches} if splits else {"dp_replicate_size": num_batches}
    model.config.distributed_config = DistributedConfig(tp_size=same_batch, **data)
    model._is_distributed_loading_by_transformers = True
    model._device_mesh = mesh
    model._tp_size, model._fsdp_size = same_batch, num_batches if splits else 1
