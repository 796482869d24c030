"""How the processes of a run are divided: batches, parts of their sequences, stages, parts of layers.

>>> from optimum_neuron.distributed.mesh import MeshSizes
>>> MeshSizes.of(world_size=4, tensor=2)
MeshSizes(data=2, context=1, pipeline=1, tensor=2)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError, refusal

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from ..trainer.layout import TrainingNeuronConfig


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
        """Divide the processes of a run.

        Args:
            world_size: processes that were started.
            tensor: `tensor_parallel_size`.
            pipeline: `pipeline_parallel_size`.
            context: `context_parallel_size`.

        Raises:
            ConfigError: they cannot be divided so; with numbers of processes that can.
        """
        together = tensor * pipeline * context
        if world_size % together == 0:
            return cls(data=world_size // together, context=context, pipeline=pipeline, tensor=tensor)
        sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, "context_parallel_size": context}
        asked = " and ".join(f"{name}={size}" for name, size in sizes.items() if size > 1)
        below = world_size // together * together
        wanted = f"{below} or {below + together}" if below else str(together)
        raise ConfigError(
            refusal(
                asked=f"{asked} with {world_size} process{'es' * (world_size > 1)}",
                found=f"{world_size} is not a multiple of {together}",
                why=f"one batch takes {together} processes, each with a core of its own",
                do=f"start {wanted} processes (torchrun --nproc_per_node {wanted} ...)",
            )
        )

    @property
    def processes_per_batch(self) -> int:
        """Processes that see the same batch."""
        return self.tensor * self.pipeline * self.context

    @property
    def copies(self) -> int:
        """Groups of processes that have the same weights, or could have: their gradients are averaged."""
        return self.data * self.context

    def device_mesh(self, device_type: str, *, shard: bool) -> DeviceMesh:
        """Make the process groups.

        Args:
            device_type: such as "neuron".
            shard: whether copies split what they could each have whole (FSDP2's dimension "shard"), or not
                ("replicate").

        Returns:
            A mesh with dimensions "replicate", "shard", "pipeline", "tensor": accelerate's data loaders expect that
            processes with the same batch are neighbors in rank.
        """
        from torch.distributed.device_mesh import init_device_mesh

        copies = (1, self.copies) if shard else (self.copies, 1)
        shape = (*copies, self.pipeline, self.tensor)
        return init_device_mesh(device_type, shape, mesh_dim_names=("replicate", "shard", "pipeline", "tensor"))

    def context_mesh(self, device_type: str) -> DeviceMesh:
        """Make the process groups that share sequences: a mesh of one dimension, in the order of the tokens.

        Args:
            device_type: as above.
        """
        from torch.distributed.device_mesh import init_device_mesh

        shape = (self.data, self.context, self.pipeline * self.tensor)
        return init_device_mesh(device_type, shape, mesh_dim_names=("data", "context", "model"))["context"]


def require_processes(layout: TrainingNeuronConfig, world_size: int) -> MeshSizes:
    """Divide the processes of a run by its layout.

    Raises:
        ConfigError: they cannot be divided so, or there is nothing to split over.
    """
    sizes = MeshSizes.of(
        world_size=world_size,
        tensor=layout.tensor_parallel_size,
        pipeline=layout.pipeline_parallel_size,
        context=layout.context_parallel_size,
    )
    splits = {"zero_1": layout.pipeline_parallel_use_zero1_optimizer, "fsdp": layout.fsdp and layout.spreads_model}
    for name in (name for name, asked in splits.items() if asked and sizes.copies == 1):
        raise ConfigError(
            refusal(
                asked=f"{name}=True with {world_size} process{'es' * (world_size > 1)}",
                found="one copy of the model",
                why="optimizer states are split over the processes that have different batches or parts of them",
                do=f"start {2 * world_size} processes (torchrun --nproc_per_node {2 * world_size}), or leave it out",
            )
        )
    return sizes


def require_agreement(facts: Mapping[str, object]) -> None:
    """Refuse to begin where processes would wait for each other forever; every process calls it.

    Args:
        facts: what must be the same in all processes.

    Raises:
        ConfigError: what differs, with the values of each rank; in every process.
    """
    import torch.distributed as dist

    told: list[Mapping[str, object]] = [{}] * dist.get_world_size()
    dist.all_gather_object(told, dict(facts))
    differing = [name for name in facts if any(other.get(name) != told[0].get(name) for other in told)]
    if not differing:
        return
    values = "; ".join(
        f"{name} is " + ", ".join(f"{other.get(name)} on rank {rank}" for rank, other in enumerate(told))
        for name in differing
    )
    raise ConfigError(
        refusal(
            asked="one run on several processes",
            found=values,
            why="each process expects the others to take part in its collectives",
            do="start the same script with the same arguments, and as many processes on each machine",
        )
    )
