"""`optimum.neuron.utils.argument_utils`: groups of arguments."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
