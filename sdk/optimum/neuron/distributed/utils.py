"""`optimum.neuron.distributed.utils`: how scripts up to Optimum Neuron 0.2 load models."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
