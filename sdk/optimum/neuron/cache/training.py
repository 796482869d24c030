"""`optimum.neuron.cache.training`: the cache in training loops."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
