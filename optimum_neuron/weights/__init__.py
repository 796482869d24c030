"""Checkpoint tensors: mapped from safetensors, bound to a program's weights, packed so that no copy is needed.

It knows nothing of models; which tensors make a weight is given as a map.
"""

from .bind import BoundWeights, bind_weights
from .checkpoint import Checkpoint, StateDict, TensorSource
from .pack import pack_checkpoint
from .shards import Shard, Shards, Split, even_split, first_split, packed_split, unit_split

__all__ = [
    "BoundWeights",
    "Checkpoint",
    "Shard",
    "Shards",
    "Split",
    "StateDict",
    "TensorSource",
    "bind_weights",
    "even_split",
    "first_split",
    "pack_checkpoint",
    "packed_split",
    "unit_split",
]
