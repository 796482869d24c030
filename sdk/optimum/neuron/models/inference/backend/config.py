"""`optimum.neuron.models.inference.backend.config`: configurations of decoders."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
