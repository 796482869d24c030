"""`torch_neuron`, the vendor's name for traced models of Inf1, as a front door to `optimum_neuron.tracing.inf1`.

Importing it registers the operators that a saved model needs, so that `torch.jit.load` works afterwards. Where nothing
names an instance, a process that imports it simulates Inf1. The names are those of `torch.neuron` too.

    import torch_neuron
    model = torch.jit.load("bert.pt")
"""

from __future__ import annotations

import importlib

from optimum_neuron.base.doors import Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("torch-neuron", __name__)
importlib.import_module("optimum_neuron.tracing.ops")


def _inf1(*names: str) -> dict[str, str]:
    return {name: f"optimum_neuron.tracing.inf1:{name}" for name in names}


NAMES: Names = {
    "torch_neuron": {
        **_inf1("Optimization", "analyze_model", "get_supported_operations", "is_available", "trace"),
        "DataParallel": "optimum_neuron.tracing:DataParallel",
        "experimental": "torch_neuron.experimental:",
        "__version__": "optimum_neuron.version:__version__",
    },
    "torch_neuron.experimental": {
        name: f"optimum_neuron.tracing:{name}"
        for name in ("multicore_context", "neuron_cores_context", "set_multicore", "set_neuron_cores")
    },
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
