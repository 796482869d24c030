"""NKI's older API: the language under the vendor's name."""

from optimum_neuron.nki.older.language import *  # noqa: F403
from optimum_neuron.nki.older.language import __all__ as __all__
