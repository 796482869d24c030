"""Traced models: any module or function compiled for a simulated NeuronCore, as a ScriptModule.

The distribution in `sdk/` offers all of this under the vendor's name, `torch_neuronx`. Names are imported when they are
first used; `optimum_neuron.tracing.ops` registers the operators that a saved model needs.

    >>> from optimum_neuron import tracing
    >>> "trace" in tracing.__all__
    True
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
