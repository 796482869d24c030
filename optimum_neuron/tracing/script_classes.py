"""Classes of `torch.classes.neuron`, the vendor's runtime, which libraries name in annotations.

Importing this module registers them. Models of this package run without them, so their use is an error.
"""

from __future__ import annotations

import torch

from ..base.doors import absent

_NAMES = (
    "LayoutTransformation",
    "Model",
    "ParallelExecutor",
    "ParallelModel",
    "ParallelTensorSet",
    "Runtime",
    "SPMDModel",
)

for _name in _NAMES:
    _alternative = "Trace with `torch_neuronx.trace`, and load with `torch.jit.load`."
    setattr(torch.classes.neuron, _name, absent("torch.classes.neuron", _name, _alternative))
