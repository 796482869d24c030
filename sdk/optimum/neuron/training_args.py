"""`optimum.neuron.training_args`: arguments of trainers, as up to Optimum Neuron 0.2."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
