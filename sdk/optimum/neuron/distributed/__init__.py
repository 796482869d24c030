"""`optimum.neuron.distributed`: names of Optimum Neuron up to 0.2, which scripts of that time import."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
