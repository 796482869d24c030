"""The profiler entry under the vendor's name."""

from optimum_neuron.tracing.profiler import profile

__all__ = ["profile"]
