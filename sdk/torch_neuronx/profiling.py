"""Options of `torch.profiler` under the vendor's names."""

from optimum_neuron.tracing import NeuronConfig, NeuronProfiler, ProfileMode

__all__ = ["NeuronConfig", "NeuronProfiler", "ProfileMode"]
