"""`optimum.neuron.accelerate`: accelerate's classes, under the names of Optimum Neuron."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
