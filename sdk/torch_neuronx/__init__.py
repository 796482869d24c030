"""`torch_neuronx`, the vendor's name for traced models, as thin re-exports of `optimum_neuron.tracing`.

Importing it registers the operators that a saved model needs, so that `torch.jit.load` works afterwards; everything
else is looked up on first use. It refuses to be imported if the vendor's `torch-neuronx` is installed, because both own
this file and the last one installed has overwritten the other.

    import torch_neuronx
    model = torch.jit.load("bert.pt")
"""

from __future__ import annotations

import importlib
from typing import Any

from optimum_neuron import tracing
from optimum_neuron.base.vendor import refuse_beside
from optimum_neuron.errors import nearest

refuse_beside("torch-neuronx", __name__)
importlib.import_module("optimum_neuron.tracing.ops")

_TRACING = [
    "BucketModelConfig",
    "DataParallel",
    "PartitionerConfig",
    "analyze",
    "async_load",
    "bucket_model_trace",
    "dynamic_batch",
    "lazy_load",
    "move_trace_to_device",
    "multicore_context",
    "neuron_cores_context",
    "replace_weights",
    "set_multicore",
    "set_neuron_cores",
    "trace",
]
_DEVICE = ["Stream", "stream", "synchronize"]
"""Names of the device "neuron"."""
_KERNELS = ["nki_op", "wrap_nki"]
"""NKI kernels as operators of PyTorch."""
_MODULES = ["contexts", "experimental", "nki_hop", "profiling", "testing", "utils", "xla_impl"]

__all__ = sorted([*_TRACING, *_DEVICE, *_KERNELS, *_MODULES, "nki"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _TRACING:
        return getattr(tracing, name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _KERNELS:
        return getattr(importlib.import_module("optimum_neuron.nki"), name)
    if name == "nki":
        return importlib.import_module(name)
    if name in _DEVICE:
        return _of_device(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{nearest(name, __all__)}")


def _of_device(name: str) -> Any:
    import torch

    device = getattr(torch, "neuron", None)
    if device is None:
        raise AttributeError(
            f"torch_neuronx.{name} needs the torch device 'neuron', which is not registered. Unset "
            "TORCH_DEVICE_BACKEND_AUTOLOAD. Traced models need no streams: their calls return when they are done."
        )
    return getattr(device, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
