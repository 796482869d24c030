"""`optimum.neuron.cache`: the registry of caches on the Hub."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
