"""NKI's older API: isa, under the vendor's name."""

from optimum_neuron.nki.older.isa import *  # noqa: F403
from optimum_neuron.nki.older.isa import __all__ as __all__
