"""NKI kernels under the vendor's name."""

from optimum_neuron.tracing.kernels import nki_jit

__all__ = ["nki_jit"]
