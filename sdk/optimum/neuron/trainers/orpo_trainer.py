"""`optimum.neuron.trainers.orpo_trainer`: a trainer and its arguments."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
