"""`optimum.neuron.peft.peft_model`: models with adapters of PEFT."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
