"""`optimum.exporters.neuron.base`: bases of export configurations."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
