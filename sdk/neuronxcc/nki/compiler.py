"""NKI's older API: where tiles lie, under the vendor's name."""

from optimum_neuron.nki.older.compiler import *  # noqa: F403
from optimum_neuron.nki.older.compiler import __all__ as __all__
