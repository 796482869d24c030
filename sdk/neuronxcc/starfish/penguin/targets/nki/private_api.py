"""The grid of physical cores under its older name."""

from optimum_neuron.nki.older import nc as vnc

__all__ = ["vnc"]
