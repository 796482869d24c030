"""`optimum.neuron.models.training.qwen3`: Qwen3 for training."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
