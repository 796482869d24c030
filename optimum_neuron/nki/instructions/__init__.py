"""The instructions, by family: each is its operands, its rules, what it computes, and what it costs.

>>> from optimum_neuron.nki.instructions import Engine
>>> Engine.vector.value
5
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
