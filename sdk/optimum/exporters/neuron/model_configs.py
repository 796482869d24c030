"""`optimum.exporters.neuron.model_configs`: export configurations of architectures."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
