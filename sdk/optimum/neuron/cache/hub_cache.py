"""`optimum.neuron.cache.hub_cache`: caches on the Hub."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
