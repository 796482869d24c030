"""`optimum.neuron.cache.cleanup`: cleaning of local caches."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
