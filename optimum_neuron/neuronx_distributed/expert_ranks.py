"""Which rank of expert parallelism has which experts.

>>> from optimum_neuron.neuronx_distributed.expert_ranks import get_experts_for_expert_parallel_rank
>>> get_experts_for_expert_parallel_rank(1, total_number_of_experts=8, expert_model_parallel_size=4)
[2, 3]
"""

from __future__ import annotations

import torch.distributed as dist

from ..errors import ConfigError
from .arithmetic import divide
from .moe_options import refuse_copies
from .parallel_state import EXPERT


def get_experts_for_expert_parallel_rank(
    expert_parallel_rank: int,
    total_number_of_experts: int,
    expert_model_parallel_size: int,
    expert_distribution: list[list[int]] | None = None,
) -> list[int]:
    """Return the experts of a rank.

    Args:
        expert_parallel_rank: the rank among those that divide experts.
        total_number_of_experts: number of experts.
        expert_model_parallel_size: number of ranks.
        expert_distribution: copies of experts; not supported.
    """
    refuse_copies(expert_distribution)
    count = divide(total_number_of_experts, expert_model_parallel_size)
    if not 0 <= expert_parallel_rank < expert_model_parallel_size:
        message = f"There is no rank {expert_parallel_rank} among {expert_model_parallel_size}."
        raise ConfigError(message, hint="Pass a smaller rank.", rank=expert_parallel_rank)
    return list(range(expert_parallel_rank * count, (expert_parallel_rank + 1) * count))


def get_expert_parallel_rank_from_global_rank(rank: int, expert_parallel_group: dist.ProcessGroup | None = None) -> int:
    """Return the place of a rank among those that divide experts.

    Args:
        rank: the rank among all.
        expert_parallel_group: not used; the groups are those of `initialize_model_parallel`.
    """
    for ranks in EXPERT.replica_groups():
        if rank in ranks:
            return ranks.index(rank)
    raise ConfigError(f"There is no rank {rank}.", hint="Pass the number of a rank.", rank=rank)
