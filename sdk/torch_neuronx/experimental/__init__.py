"""Placement under its older names, and the profiler."""

from optimum_neuron.tracing import multicore_context, neuron_cores_context, set_multicore, set_neuron_cores

__all__ = ["multicore_context", "neuron_cores_context", "profiler", "set_multicore", "set_neuron_cores"]

from . import profiler
