"""`nki`, the vendor's name for the kernel language; kernels run on a simulated core.

It refuses to be imported where the vendor's `nki` is installed, because both own this file.
"""

from optimum_neuron.base.vendor import refuse_beside
from optimum_neuron.nki import analyze, collectives, jit, simulate

from . import dtype, isa, language, typing

refuse_beside("nki", __name__)

__all__ = ["analyze", "collectives", "dtype", "isa", "jit", "language", "simulate", "typing"]
