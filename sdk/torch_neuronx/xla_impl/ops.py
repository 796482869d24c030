"""NKI kernels under the vendor's name."""

from optimum_neuron.tracing import nki_jit

__all__ = ["nki_jit"]
