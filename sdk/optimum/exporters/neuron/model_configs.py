"""`optimum.exporters.neuron.model_configs`: it tells `TasksManager` the architectures."""

from optimum.exporters.neuron._configs import register_architectures
from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)

register_architectures()
