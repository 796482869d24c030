"""`optimum.neuron.configuration_utils`: the configuration of a compiled decoder."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
