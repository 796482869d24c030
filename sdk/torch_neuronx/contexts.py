"""Contexts under the vendor's names."""

from optimum_neuron.tracing import disable_nrt_load, multicore_context, neuron_cores_context

__all__ = ["disable_nrt_load", "multicore_context", "neuron_cores_context"]
