"""`optimum.neuron.modeling_base`: base classes of compiled models."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
