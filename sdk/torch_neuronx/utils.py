"""Utilities under the vendor's names."""

from optimum_neuron.tracing import get_platform_target

__all__ = ["get_platform_target"]
