"""`optimum.neuron.utils.instance`: helpers that scripts import."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
