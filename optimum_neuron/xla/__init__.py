"""The torch device "xla": scripts of PyTorch/XLA on simulated NeuronCores.

Nothing here runs before it is asked for. `enable()` makes "xla" a device of torch beside "neuron", on the same cores.
Values are computed at once; what PyTorch/XLA would trace, compile and count is recorded between two calls of `sync`.

    import torch
    from optimum_neuron import xla

    xla.enable()
    x = torch.ones(2, device="xla") + 1
    xla.sync()
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
