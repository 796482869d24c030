"""`optimum.neuron.utils.ecr`: images of containers."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
