"""The torch device "neuron": simulated NeuronCores as devices of PyTorch.

torch loads it by itself (`autoload.py`, an entry point), so a user imports nothing of this package:

    import torch
    x = torch.randn(128, device="neuron", requires_grad=True)

Tensors live in host memory that is charged to the HBM of a simulated core, and the CPU's kernels compute on it without
copies (`csrc/`). `torch.neuron` is `module/`. It does not depend on compiled programs; they share its cores and
ledgers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
