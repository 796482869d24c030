"""`optimum.neuron.models.inference.yolos.modeling_yolos`: YOLOS, by the class of its task."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
