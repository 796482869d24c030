"""NKI's older API: the language, and the grid of physical cores, under the vendor's names."""

from optimum_neuron.nki.older import language
from optimum_neuron.nki.older.language import *  # noqa: F403
from optimum_neuron.tracing import Cores as nc

__all__ = [*language.__all__, "nc"]
