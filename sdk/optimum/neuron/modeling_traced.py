"""`optimum.neuron.modeling_traced`: what all encoder-style models have."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
