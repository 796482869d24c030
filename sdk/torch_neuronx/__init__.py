"""`torch_neuronx`, the vendor's name for traced models, as a front door to `optimum_neuron.tracing`.

Importing it registers the operators that a saved model needs, so that `torch.jit.load` works afterwards; everything
else is looked up on first use. Its other modules have no files. It refuses to be imported if the vendor's
`torch-neuronx` is installed, because both own this file and the last one installed has overwritten the other.

    import torch_neuronx
    model = torch.jit.load("bert.pt")
"""

from __future__ import annotations

import importlib

from optimum_neuron.base.doors import Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("torch-neuronx", __name__)
importlib.import_module("optimum_neuron.tracing.ops")


def _tracing(*names: str) -> dict[str, str]:
    return {name: f"optimum_neuron.tracing:{name}" for name in names}


_PLACEMENT = _tracing("multicore_context", "neuron_cores_context", "set_multicore", "set_neuron_cores")
_KERNELS = {name: f"optimum_neuron.nki:{name}" for name in ("nki_op", "wrap_nki")}
_COMPARISONS = _tracing("assert_close", "neuron_allclose")
_MODULES = ("contexts", "experimental", "nki_hop", "profiling", "testing", "utils", "xla_impl")

NAMES: Names = {
    "torch_neuronx": {
        **_PLACEMENT,
        **_KERNELS,
        **_tracing("BucketModelConfig", "DataParallel", "PartitionerConfig", "analyze", "async_load"),
        **_tracing("bucket_model_trace", "dynamic_batch", "lazy_load", "move_trace_to_device", "replace_weights"),
        **_tracing("trace"),
        **{name: f"torch:neuron.{name}" for name in ("Stream", "stream", "synchronize")},
        **{name: f"torch_neuronx.{name}:" for name in _MODULES},
        "nki": "nki:",
    },
    "torch_neuronx.contexts": _tracing("disable_nrt_load", "multicore_context", "neuron_cores_context"),
    "torch_neuronx.experimental": {**_PLACEMENT, "profiler": "torch_neuronx.experimental.profiler:"},
    "torch_neuronx.experimental.profiler": _tracing("profile"),
    "torch_neuronx.nki_hop": _KERNELS,
    "torch_neuronx.profiling": _tracing("NeuronConfig", "NeuronProfiler", "ProfileMode"),
    "torch_neuronx.testing": {**_COMPARISONS, "validation": "torch_neuronx.testing.validation:"},
    "torch_neuronx.testing.validation": {**_COMPARISONS, **_tracing("custom_allclose")},
    "torch_neuronx.utils": _tracing("get_platform_target"),
    "torch_neuronx.xla_impl": {name: f"torch_neuronx.xla_impl.{name}:" for name in ("data_parallel", "ops")},
    "torch_neuronx.xla_impl.data_parallel": _tracing("DataParallel"),
    "torch_neuronx.xla_impl.ops": _tracing("nki_jit"),
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
