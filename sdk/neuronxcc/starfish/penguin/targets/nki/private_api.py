"""The grid of physical cores under its older name."""

from optimum_neuron.tracing import Cores as vnc

__all__ = ["vnc"]
