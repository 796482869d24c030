"""The instructions, under the vendor's name."""

from optimum_neuron.nki.isa import *  # noqa: F403
from optimum_neuron.nki.isa import __all__ as __all__
