"""`optimum.neuron.modeling`: a class for each task of an encoder-style model."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
