"""Traced models of Inf1: TorchScript graphs whose segments run on NeuronCore-v1, with the rest on the CPU.

The distribution in `sdk/` offers this as `torch_neuron` and `torch.neuron`.

    >>> from optimum_neuron.tracing import inf1
    >>> "trace" in inf1.__all__
    True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
