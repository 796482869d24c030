"""Classes of `torch.classes.neuron`, the vendor's runtime, which libraries name in annotations.

Importing this module registers them. `Runtime` unloads models; models of this package run without the others, so their
use is an error.
"""

from __future__ import annotations

import torch

from ..base.doors import absent
from . import ops

_NAMES = (
    "LayoutTransformation",
    "Model",
    "ParallelExecutor",
    "ParallelModel",
    "ParallelTensorSet",
    "SPMDModel",
)

for _name in _NAMES:
    _alternative = "Trace with `torch_neuronx.trace`, and load with `torch.jit.load`."
    setattr(torch.classes.neuron, _name, absent("torch.classes.neuron", _name, _alternative))


class Runtime:
    """The runtime of this process."""

    def unsafe_close(self) -> None:
        """Give the cores and the memory of all traced models back; their next call loads them again."""
        ops.unload_all()


torch.classes.neuron.Runtime = Runtime
