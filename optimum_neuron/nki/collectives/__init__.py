"""`nki.collectives`: all ranks of a group call one function, and each gets its part of the result.

Ranks are logical cores. `launch_ranks` runs a kernel on several, each with its own arguments; a kernel that is called
alone is a world of one rank. Reductions are in float32, in the order of the group.

    >>> import torch
    >>> from optimum_neuron.nki import collectives as ncc, jit, language as nl, launch_ranks
    >>> @jit
    ... def total(x):
    ...     parts, out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    ...     nl.store(parts, nl.load(x))
    ...     ncc.all_reduce([parts], [out], ncc.ReplicaGroup([[0, 1]]), nl.add)
    ...     return out
    >>> [float(out[0, 0]) for out in launch_ranks(total, [(torch.ones(128, 4),), (torch.full((128, 4), 2.0),)])]
    [3.0, 3.0]
"""

from .base import ReplicaGroup, reduced as reduced
from .operations import (
    all_gather,
    all_gather_v,
    all_reduce,
    all_to_all,
    all_to_all_v,
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
    reduce_scatter,
)

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
]
