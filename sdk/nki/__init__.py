"""`nki`, the vendor's name for the kernel language; kernels run on a simulated core.

It refuses to be imported where the vendor's `nki` is installed, because both own this file.
"""

from optimum_neuron.base.doors import Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("nki", __name__)

_ENUMERATIONS = ("dge_mode", "dma_engine", "engine", "matmul_perf_mode", "nc_version", "oob_mode", "reduce_cmd")
_FUNCTIONS = ("analyze", "collectives", "compare", "jit", "simulate", "tune")
_MODULES = ("dtype", "isa", "language", "typing")

NAMES: Names = {
    "nki": {
        **{name: f"optimum_neuron.nki:{name}" for name in _FUNCTIONS},
        **{name: f"nki.{name}:" for name in _MODULES},
    },
    **{f"nki.{name}": f"optimum_neuron.nki.{name}" for name in ("collectives", "isa", "language")},
    "nki.isa.constants": {name: f"optimum_neuron.nki.isa:{name}" for name in _ENUMERATIONS},
    "nki.typing": "optimum_neuron.nki.legacy.typing",
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
