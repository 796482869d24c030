"""`optimum.neuron.models.inference.modeling_utils`: decoders."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
