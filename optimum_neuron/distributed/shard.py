"""A model's parameters as DTensors: split over the cores that share layers, split or copied over those that do not.

Every process starts with the whole model on the host and keeps its part on its core. It knows nothing of trainers.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

from .mesh import MeshSizes
from .pipeline import Stage, cut
from .plans import tensor_plan


def shard(model: Any, sizes: MeshSizes, mesh: DeviceMesh, *, zero_1: bool) -> Stage | None:
    """Distribute a model in place; return the stage of its pipeline, where there is one.

    Args:
        model: one of transformers, whole, on the host; weights are those of rank 0 afterwards.
        sizes: of the mesh.
        mesh: of `MeshSizes.device_mesh`.
        zero_1: whether data-parallel processes split optimizer states, and with them gradients.

    Raises:
        ConfigError: tensor parallelism of a model without a plan, or whose heads cannot be split so.
    """
    device = torch.device("neuron", torch.neuron.current_device())
    plan = tensor_plan(model, size=sizes.tensor).value if sizes.tensor > 1 else {}
    take_weights_of_rank_0(model)
    if plan:
        model.tp_plan = dict(plan)
        _untie(model)
        apply_tensor_parallelism(model, mesh["tensor"], model._expand_parallel_plan(model.tp_plan))
        model.tie_weights()
    stage = None
    if sizes.pipeline > 1:
        stage = cut(model, index=mesh["pipeline"].get_local_rank(), num_stages=sizes.pipeline)
    model.to(device)
    if sizes.data > 1:
        if sizes.tensor > 1:
            # Norms of gradients are summed over both at once; the mesh remembers the joint group.
            mesh["shard", "tensor"]._flatten()
        for layer in layers_of(model):
            # Gathered for the forward pass, and kept for the backward pass: ZeRO-1 splits states, not computation.
            fully_shard(layer, mesh=mesh["replicate", "shard"], reshard_after_forward=False)
        fully_shard(stage or model, mesh=mesh["replicate", "shard"], reshard_after_forward=False)
        # Lets `Trainer` reduce gradients once for several batches; a schedule does so for the parts of one.
        model._is_fsdp_managed_module = stage is None
    _tell_transformers(model, sizes, mesh, zero_1=zero_1)
    return stage


def layers_of(model: Any) -> list[torch.nn.Module]:
    """The repeated blocks of a model, which transformers names in `_no_split_modules`."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    return [layer for blocks in lists for layer in blocks if type(layer).__name__ in names]


def take_weights_of_rank_0(model: torch.nn.Module) -> None:
    """Give every process the weights of rank 0, as DistributedDataParallel does."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, src=0)


def _untie(model: Any) -> None:
    """Give a tied head a parameter of its own while a plan, which names both, is applied."""
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is embeddings.weight:
        head.weight = torch.nn.Parameter(head.weight.detach())


def _tell_transformers(model: Any, sizes: MeshSizes, mesh: DeviceMesh, *, zero_1: bool) -> None:
    """Say what `from_pretrained(distributed_config=...)` would have: who wraps, scales and saves reads it."""
    # Stages see the same batch, as cores do that share layers: the only such cores that transformers knows.
    same_batch = sizes.processes_per_batch
    data = {"fsdp_size": sizes.data} if zero_1 else {"dp_replicate_size": sizes.data}
    model.config.distributed_config = DistributedConfig(tp_size=same_batch, **data)
    model._is_distributed_loading_by_transformers = True
    model._device_mesh = mesh
    model._tp_size, model._fsdp_size = same_batch, sizes.data if zero_1 else 1
