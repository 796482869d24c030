"""`optimum.neuron.utils.version_utils`: versions that scripts ask for."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
