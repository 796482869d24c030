"""`optimum.exporters.neuron.config`: export configurations for each kind of input."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
