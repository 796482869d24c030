"""Annotations of tensors in kernels, under the vendor's name."""

from optimum_neuron.nki.older.typing import *  # noqa: F403
from optimum_neuron.nki.older.typing import __all__ as __all__
