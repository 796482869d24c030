"""NKI's older API under the vendor's names; kernels run on a simulated core."""

from optimum_neuron.nki.older import baremetal, benchmark, jit, profile, simulate_kernel, trace

from . import compiler, isa, language, typing

__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "trace",
    "typing",
]
