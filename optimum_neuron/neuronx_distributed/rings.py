"""Options of the vendor's kernels that libraries make: rings of ranks, in which each rank sends to the next one.

>>> from optimum_neuron.neuronx_distributed.rings import CollectivesConfig
>>> CollectivesConfig(replica_groups=[[0, 2], [1, 3]]).rank_src_tgt_pairs[3]
[[1, 3], [3, 1]]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


def pairs_of_ring(ranks: Sequence[int]) -> list[list[int]]:
    """Return which rank sends to which: each to the next one, and the last one to the first."""
    return [[source, ranks[(place + 1) % len(ranks)]] for place, source in enumerate(ranks)]


class CollectivesConfig:
    """The ring of each rank of some groups, as kernels of attention take it."""

    def __init__(self, *, replica_groups: Sequence[Sequence[int]]) -> None:
        """Make the rings.

        Args:
            replica_groups: ranks of each group.
        """
        self.rank_src_tgt_pairs = {rank: pairs_of_ring(group) for group in replica_groups for rank in group}
        """Pairs of sender and receiver in the ring of each rank."""


@dataclasses.dataclass(frozen=True)
class SkipMode:
    """Which parts of a block a kernel of experts leaves out."""

    skip_token: bool = False
    """Tokens that are padding."""
    skip_weight: bool = False
    """Weights that the block before has loaded."""
