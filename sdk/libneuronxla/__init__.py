"""`libneuronxla`, the vendor's name for the compiler behind PyTorch/XLA: the names that libraries import.

It refuses to be imported where the vendor's `libneuronxla` is installed, because both own this file.
"""

from optimum_neuron.base.doors import Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("libneuronxla", __name__)

_TRACE = Missing("Compile with `torch_neuronx.trace`: programs are not HLO here.")

NAMES: Names = {
    "libneuronxla": {
        "register_hlo_snapshot_callback": "optimum_neuron.xla.internals:register_hlo_snapshot_callback",
        **{name: _TRACE for name in ("neuron_xla_compile", "neuron_xla_wlo_compile")},
    }
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
