"""`optimum.neuron.models.inference.backend.neuron_device_memory`: devices of this machine."""

from optimum.neuron._doors import door

__getattr__, __dir__, __all__ = door(__name__)
