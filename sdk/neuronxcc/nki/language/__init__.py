"""The grid of physical cores, under the name that scripts import; kernels do not run here."""

from optimum_neuron.tracing import Cores as nc

__all__ = ["nc"]
