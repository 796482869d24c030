"""Checkpoint tensors: mapped from safetensors, bound to a program's weights, packed so that no copy is needed.

It knows nothing of models; which tensors make a weight is given as a map.
"""

from .bind import BoundWeights, bind_weights
from .checkpoint import Checkpoint, StateDict, TensorSource
from .pack import pack_checkpoint

__all__ = ["BoundWeights", "Checkpoint", "StateDict", "TensorSource", "bind_weights", "pack_checkpoint"]
