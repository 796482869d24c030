"""`optimum.neuron.models.training.training_utils`: helpers of training."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
