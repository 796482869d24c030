"""NKI's older API under the vendor's names; kernels run on a simulated core."""

from optimum_neuron.nki.older import jit, simulate_kernel

__all__ = ["jit", "simulate_kernel"]
