"""Division of a run's processes: batches, parts of their sequences, stages, parts of layers.

>>> from optimum_neuron.distributed.mesh import MeshSizes
>>> MeshSizes.of(world_size=4, tensor=2)
MeshSizes(data=2, context=1, pipeline=1, tensor=2)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .layout import TrainingNeuronConfig

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSizes:
    """Numbers of processes along each dimension of a mesh, from the outermost; neighbors in rank share layers."""

    data: int = 1
    """Groups of processes with different batches."""
    context: int = 1
    """Processes with different parts of each sequence."""
    pipeline: int = 1
    """Processes with different layers."""
    tensor: int = 1
    """Processes that share each layer, and the batch."""

    @classmethod
    def of(cls, *, world_size: int, tensor: int = 1, pipeline: int = 1, context: int = 1) -> MeshSizes:
        """Divide the processes of a run."""
        together = tensor * pipeline * context
        if world_size % together == 0:
            return cls(data=world_size // together, context=context, pipeline=pipeline, tensor=tensor)
        sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, "context_parallel_size": context}
        sizes = {name: size for name, size in sizes.items() if size > 1}
        below = world_size // together * together
        choices = [below, below + together] if below else [together]
        options = ", ".join(f"{name}={size}" for name, size in sizes.items())
        message = f"The number of processes, {world_size}, is not a multiple of {together} ({options})."
        hint = f"Start {' or '.join(map(str, choices))} processes (torchrun --nproc_per_node {choices[0]} ...)."
        raise ConfigError(message, hint=hint, option="world_size", value=world_size, choices=choices, sizes=sizes)

    @property
    def processes_per_batch(self) -> int:
        """Processes that see the same batch."""
        return self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """Groups of processes that have the same weights, or could have: their gradients are averaged."""
        return self.data * self.context

    def device_mesh(self, device_type: str, *, shard: bool) -> DeviceMesh:
        """Make the process groups.

        Args:
            device_type: such as "neuron".
            shard: whether replicas split what each could have whole (FSDP2's dimension "shard"), or not
                ("replicate").

        Returns:
            A mesh with dimensions "replicate", "shard", "pipeline", "tensor": accelerate's data loaders expect that
            processes with the same batch are neighbors in rank.
        """
        from torch.distributed.device_mesh import init_device_mesh

        replicas = (1, self.replicas) if shard else (self.replicas, 1)
        shape = (*replicas, self.pipeline, self.tensor)
        return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard", "pipeline", "tensor"))

    def context_mesh(self, device_type: str) -> DeviceMesh:
        """Make the process groups that share sequences: a mesh of one dimension, in the order of the tokens."""
        from torch.distributed.device_mesh import init_device_mesh

        shape = (self.data, self.context, self.pipeline * self.tensor)
        return init_device_mesh(device_type, shape, mesh_dim_names=("data", "context", "model"))["context"]


def require_processes(layout: TrainingNeuronConfig, world_size: int) -> MeshSizes:
    """Divide the processes of a run by its layout."""
    sizes = MeshSizes.of(
        world_size=world_size,
        tensor=layout.tensor_parallel_size,
        pipeline=layout.pipeline_parallel_size,
        context=layout.context_parallel_size,
    )
    if layout.fsdp and layout.spreads_model and sizes.replicas == 1:
        message = "fsdp=True splits weights over replicas of the model, but there is only 1."
        hint = f"Start {2 * world_size} processes (torchrun --nproc_per_node {2 * world_size}), or remove fsdp."
        raise ConfigError(message, hint=hint, option="fsdp", value=True, choices=[2 * world_size])
    return sizes


def require_agreement(facts: Mapping[str, object]) -> None:
    """Raise an error in all processes whose facts differ, where they would wait forever; every process calls it."""
    import torch.distributed as dist

    ranks: list[Mapping[str, object]] = [{}] * dist.get_world_size()
    dist.all_gather_object(ranks, dict(facts))
    differing = {name: [other.get(name) for other in ranks] for name in facts}
    differing = {name: values for name, values in differing.items() if any(value != values[0] for value in values)}
    if differing:
        parts = [
            f"{name} is " + ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
            for name, values in differing.items()
        ]
        hint = "Start the same script with the same arguments and as many processes on each machine."
        raise ConfigError(f"The processes of the run differ: {'; '.join(parts)}.", hint=hint, differing=differing)
