"""`optimum.neuron.modeling_traced`: shared parts of all encoder-style models."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
