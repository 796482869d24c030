"""Groups of ranks: tensor, context, data, pipeline, and expert parallelism.

Ranks are in the order [pipeline, data, context, tensor], so a group of tensor parallelism has neighbors; with experts,
the order is [pipeline, data of experts, expert, tensor]. `AXES` has one `Axis` for each way to divide ranks.

    initialize_model_parallel(tensor_model_parallel_size=2)
    TENSOR.rank()
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import torch
import torch.distributed as dist

from ..base import env
from ..errors import ConfigError, RuntimeConfigError
from .agreement import exchanged, require_agreement
from .platforms import hardware
from .rings import pairs_of_ring

Groups = list[list[int]]
_logger = logging.getLogger("Neuron")


class Axis:
    """One way to divide ranks, and this rank's group.

    Args:
        name: what it divides, in messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._groups: Groups = []
        self._made: dist.ProcessGroup | None = None
        self._size: int | None = None
        self._rank: int | None = None

    def set(self, groups: Groups, made: dist.ProcessGroup) -> None:
        """Set the groups of all ranks, and this rank's group."""
        self._groups, self._made = groups, made

    def clear(self) -> None:
        """Forget the groups."""
        self._groups, self._made, self._size, self._rank = [], None, None, None

    def is_made(self) -> bool:
        """Return whether it has groups."""
        return self._made is not None

    def _require(self) -> dist.ProcessGroup:
        if self._made is None:
            message = f"There are no groups of {self.name} parallelism."
            hint = "Call initialize_model_parallel() after torch.distributed.init_process_group()."
            raise ConfigError(message, hint=hint, parallelism=self.name)
        return self._made

    def group(self, as_list: bool = False) -> Any:
        """Return this rank's process group.

        Args:
            as_list: return the ranks of all groups instead.
        """
        made = self._require()
        return self.replica_groups() if as_list else made

    def replica_groups(self) -> Groups:
        """Return the ranks of all groups."""
        self._require()
        return [list(ranks) for ranks in self._groups]

    def ranks(self) -> list[int]:
        """Return the ranks of this rank's group."""
        self._require()
        return next(ranks for ranks in self._groups if dist.get_rank() in ranks)

    def size(self) -> int:
        """Return the number of ranks in a group."""
        return len(self.ranks()) if self._size is None else self._size

    def rank(self) -> int:
        """Return the place of this rank in its group."""
        return self.ranks().index(dist.get_rank()) if self._rank is None else self._rank

    def src_rank(self) -> int:
        """Return the first rank of this rank's group."""
        return self.ranks()[0]

    def next_rank(self) -> int:
        """Return the rank after this one, and the first after the last."""
        return self.ranks()[(self.rank() + 1) % self.size()]

    def prev_rank(self) -> int:
        """Return the rank before this one, and the last before the first."""
        return self.ranks()[(self.rank() - 1) % self.size()]

    def set_size(self, world_size: int) -> None:
        """Set the answer of `size`."""
        self._size = world_size

    def set_rank(self, rank: int) -> None:
        """Set the answer of `rank`."""
        self._rank = rank


WORLD, TENSOR, CONTEXT, DATA = Axis("world"), Axis("tensor"), Axis("context"), Axis("data")
PIPELINE, EXPERT, EXPERT_DATA = Axis("pipeline"), Axis("expert"), Axis("expert data")
ZERO1, KV_SHARED, TOKEN_SHUFFLE = Axis("ZeRO-1"), Axis("KV-shared"), Axis("token shuffle")
MESSAGES = Axis("pipeline")
"""The ranks of a pipeline in a group for messages alone: ranks send other numbers of them, and groups count calls."""
AXES = (WORLD, TENSOR, CONTEXT, DATA, PIPELINE, EXPERT, EXPERT_DATA, ZERO1, KV_SHARED, TOKEN_SHUFFLE, MESSAGES)


@dataclasses.dataclass(frozen=True)
class ParallelGroups:
    """Ranks of the groups of each kind."""

    tp_groups: Groups
    dp_groups: Groups
    pp_groups: Groups
    ep_model_groups: Groups
    ep_data_groups: Groups
    cp_groups: Groups
    zero1_groups: Groups


def initialize_model_parallel(
    tensor_model_parallel_size: int = 1,
    pipeline_model_parallel_size: int = 1,
    context_parallel_size: int = 1,
    expert_model_parallel_size: int = 1,
    skip_collective_init: bool = False,
    lnc_size: int = 1,
    mesh_only: bool = False,
) -> ParallelGroups | None:
    """Make the groups; data parallelism has the ranks that are left.

    Args:
        tensor_model_parallel_size: number of ranks that divide tensors.
        pipeline_model_parallel_size: number of stages.
        context_parallel_size: number of ranks that divide sequences.
        expert_model_parallel_size: number of ranks that divide experts.
        skip_collective_init: make no first collective, which compares the arguments of all ranks.
        lnc_size: physical cores of a core.
        mesh_only: return the ranks of the groups, and make none.

    Raises:
        ConfigError: groups were made already, or ranks have other arguments.
        RuntimeConfigError: the degrees do not divide the ranks.
    """
    if not dist.is_initialized():
        hint = "Call torch.distributed.init_process_group() first."
        raise ConfigError("torch.distributed is not initialized.", hint=hint)
    degrees = {
        "tensor_model_parallel_size": tensor_model_parallel_size,
        "pipeline_model_parallel_size": pipeline_model_parallel_size,
        "context_parallel_size": context_parallel_size,
        "expert_model_parallel_size": expert_model_parallel_size,
        "lnc_size": lnc_size,
    }
    if not mesh_only:
        if model_parallel_is_initialized():
            raise ConfigError("Model parallelism is initialized already.", hint="Call destroy_model_parallel() first.")
        if not skip_collective_init:
            require_agreement("degrees of parallelism", degrees)
    groups = groups_of(dist.get_world_size(), *list(degrees.values())[:4])
    if mesh_only:
        return groups
    for axis, size in zip((TENSOR, PIPELINE, CONTEXT, EXPERT), degrees.values(), strict=False):
        _logger.info("> initializing %s model parallel with size %d", axis.name, size)
    _logger.info("> initializing data parallel with size %d", len(groups.dp_groups[0]))
    _logger.info("> initializing world size to %d", dist.get_world_size())
    WORLD.set([list(range(dist.get_world_size()))], dist.group.WORLD)
    for axis, made in (
        (TENSOR, groups.tp_groups),
        (CONTEXT, groups.cp_groups),
        (DATA, groups.dp_groups),
        (PIPELINE, groups.pp_groups),
        (EXPERT, groups.ep_model_groups),
        (EXPERT_DATA, groups.ep_data_groups),
        (ZERO1, groups.zero1_groups),
    ):
        axis.set(made, new_group(made))
    has_stages = PIPELINE.size() > 1
    MESSAGES.set(groups.pp_groups, new_group(groups.pp_groups) if has_stages else PIPELINE.group())
    return None


def groups_of(world_size: int, tensor: int, pipeline: int, context: int, expert: int) -> ParallelGroups:
    """Return the ranks of all groups."""
    data = _quotient(world_size, tensor=tensor, pipeline=pipeline, context=context)
    expert_data = _quotient(world_size, tensor=tensor, pipeline=pipeline, expert=expert)
    ranks = torch.arange(world_size)
    plain = ranks.reshape(pipeline, data, context, tensor)
    of_experts = ranks.reshape(pipeline, expert_data, expert, tensor)
    return ParallelGroups(
        tp_groups=_along(plain, 3),
        dp_groups=_along(plain, 1),
        pp_groups=_along(plain, 0),
        ep_model_groups=_along(of_experts, 2),
        ep_data_groups=_along(of_experts, 1),
        cp_groups=_along(plain, 2),
        zero1_groups=_along(ranks.reshape(pipeline, data * context, tensor), 1),
    )


def _along(ranks: torch.Tensor, dim: int) -> Groups:
    groups: Groups = ranks.movedim(dim, -1).reshape(-1, ranks.shape[dim]).tolist()
    return groups


def _quotient(world_size: int, **degrees: int) -> int:
    product = 1
    for name, degree in degrees.items():
        if not isinstance(degree, int) or degree < 1:
            message = f"The degree of {name} parallelism is {degree!r}."
            raise ConfigError(message, hint="Pass a number from 1.", parallelism=name, degree=degree)
        product *= degree
    if world_size % product:
        text = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
        message = f"{world_size} ranks cannot be divided by {text} = {product}."
        hint = "Start a multiple of that number of processes, or change the degrees."
        raise RuntimeConfigError(message, hint=hint, world_size=world_size, degrees=degrees)
    return world_size // product


def new_group(groups: Groups) -> dist.ProcessGroup:
    """Make groups that divide all ranks, and return this rank's."""
    rank = dist.get_rank()
    if dist.get_backend() == "xla":
        own = next(ranks for ranks in groups if rank in ranks)
        return dist.new_group(own, pg_options={"xla_pg_options": {"mesh": groups}})
    made = [dist.new_group(ranks) for ranks in groups]
    return next(group for group, ranks in zip(made, groups, strict=True) if rank in ranks)


def create_pg_with_ranks(ranks: list[int]) -> dist.ProcessGroup:
    """Make the group of some stages, for each pipeline, and return this rank's.

    Args:
        ranks: the stages.
    """
    groups = [[pipeline[stage] for stage in ranks] for pipeline in PIPELINE.replica_groups()]
    rest = [[rank] for rank in range(dist.get_world_size()) if not any(rank in group for group in groups)]
    return new_group([*groups, *rest])


def destroy_model_parallel() -> None:
    """Forget all groups."""
    for axis in AXES:
        axis.clear()


def model_parallel_is_initialized() -> bool:
    """Return whether groups were made."""
    return TENSOR.is_made()


def get_zero1_sharding_groups() -> Groups:
    """Return the ranks of the groups that divide an optimizer's states: those of data and context parallelism."""
    return ZERO1.replica_groups()


def get_context_model_parallel_src_tgt_pairs() -> list[list[int]]:
    """Return who sends to whom in the ring of this rank's context parallelism."""
    return pairs_of_ring(CONTEXT.ranks())


def initialize_kv_group(kv_shared_group_size: int = 1, sequential_ranks_in_group: bool = False) -> None:
    """Make groups of ranks with the same heads of keys and values.

    Args:
        kv_shared_group_size: number of ranks with the same heads.
        sequential_ranks_in_group: let neighbors have the same heads.
    """
    KV_SHARED.clear()
    groups = [
        rows
        for ranks in TENSOR.replica_groups()
        for rows in _parts(ranks, kv_shared_group_size, sequential_ranks_in_group)
    ]
    KV_SHARED.set(groups, new_group(groups))


def initialize_token_shuffle_group(token_shuffle_group_size: int = 1) -> None:
    """Make groups of neighbors in data parallelism which exchange tokens.

    Args:
        token_shuffle_group_size: number of ranks in a group.
    """
    TOKEN_SHUFFLE.clear()
    groups = [rows for ranks in DATA.replica_groups() for rows in _parts(ranks, token_shuffle_group_size, True)]
    TOKEN_SHUFFLE.set(groups, new_group(groups))


def _parts(ranks: list[int], size: int, neighbors: bool) -> Groups:
    count = _quotient(len(ranks), group=size)
    return [ranks[part * size : (part + 1) * size] if neighbors else ranks[part::count] for part in range(count)]


def arrange_kv_groups(
    num_tensor_model_parallel_groups: int = 1,
    tensor_model_parallel_size: int = 1,
    kv_shared_group_size: int = 1,
    sequential_ranks_in_group: bool = False,
    hardware_type: hardware = hardware.TRN1,
) -> Groups:
    """Return the ranks of groups with the same heads of keys and values; on Trn2 they are neighbors.

    Args:
        num_tensor_model_parallel_groups: number of groups of tensor parallelism.
        tensor_model_parallel_size: their size.
        kv_shared_group_size: number of ranks with the same heads.
        sequential_ranks_in_group: let neighbors have the same heads.
        hardware_type: the platform.
    """
    neighbors = sequential_ranks_in_group or hardware_type is hardware.TRN2
    ranks = torch.arange(num_tensor_model_parallel_groups * tensor_model_parallel_size)
    tensor_groups: Groups = ranks.reshape(num_tensor_model_parallel_groups, -1).tolist()
    return [part for group in tensor_groups for part in _parts(group, kv_shared_group_size, neighbors)]


def is_global_rank_zero() -> bool:
    """Return whether this is rank 0, or the only process."""
    return not dist.is_initialized() or dist.get_rank() == 0


def gather_python_object(obj: object, group: dist.ProcessGroup) -> list[Any]:
    """Return the objects of all ranks of a group on its first rank, and an empty list on others.

    Args:
        obj: this rank's object.
        group: the group.
    """
    found = exchanged(obj, group)
    return found if dist.get_rank(group) == 0 else []


_is_traced = False


def set_aot_mode(mode: bool) -> None:
    """Say whether models are traced; nothing of this package depends on it.

    Args:
        mode: the answer of `get_aot_mode`.
    """
    global _is_traced
    _is_traced = mode


def get_aot_mode() -> bool:
    """Return whether models are traced, as `NxDParallelState` and `set_aot_mode` say."""
    return _is_traced


def rmsg(msg: str) -> str:
    """Return a message that begins with the ranks of this process.

    Args:
        msg: the message.
    """
    pp, tp, dp, cp = (axis.rank() if axis.is_made() else -1 for axis in (PIPELINE, TENSOR, DATA, CONTEXT))
    rank = dist.get_rank() if dist.is_initialized() else 0
    return f"[rank_{rank}_pp{pp}_tp{tp}_dp{dp}_cp{cp}] {msg}"


def get_rank_info_str() -> str:
    """Return the ranks of this process, for names of files and logs."""
    if not model_parallel_is_initialized():
        return "model_parallel_uninitialized"
    return f"DP_{DATA.rank()}_TP_{TENSOR.rank()}_PP_{PIPELINE.rank()}"


def cpu_mode() -> bool:
    """Return whether NXD_CPU_MODE asks for training on the CPU, without "xla"."""
    return env.nxd_cpu_mode()
