"""Collectives between ranks, under the vendor's name."""

from optimum_neuron.nki.collectives import *  # noqa: F403
from optimum_neuron.nki.collectives import __all__ as __all__
