"""`optimum.neuron.models.training.llama.modeling_llama`: Llama for training."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
