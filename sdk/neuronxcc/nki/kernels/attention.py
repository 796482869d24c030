"""The attention kernel under the vendor's name."""

from optimum_neuron.tracing import attention_isa_kernel

__all__ = ["attention_isa_kernel"]
