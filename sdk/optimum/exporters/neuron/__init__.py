"""`optimum.exporters.neuron`: export from Python; its other modules have no files, see `optimum/neuron/_names.py`."""

from optimum.neuron._names import NAMES

from optimum_neuron.base.doors import open_doors

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
