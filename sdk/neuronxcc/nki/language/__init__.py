"""The grid of physical cores, under the name that scripts import; kernels do not run here."""

from optimum_neuron.tracing.kernels import Cores as nc

__all__ = ["nc"]
