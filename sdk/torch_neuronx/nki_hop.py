"""NKI kernels as operators of PyTorch, under the vendor's name of the module."""

from optimum_neuron.nki import nki_op, wrap_nki

__all__ = ["nki_op", "wrap_nki"]
