"""The profiler entry under the vendor's name."""

from optimum_neuron.tracing import profile

__all__ = ["profile"]
