"""`optimum.exporters.neuron.convert`: exports of models in memory, and their validation."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
