"""`optimum.neuron.accelerate.state`: the state of a process."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
