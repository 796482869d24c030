"""The language of kernels, under the vendor's name."""

from optimum_neuron.nki.language import *  # noqa: F403
from optimum_neuron.nki.language import __all__ as __all__
