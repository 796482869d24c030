"""`optimum.neuron.models.training.config`: how the cores of a training share a model."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
