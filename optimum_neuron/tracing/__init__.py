"""Traced models: any module or function compiled for a simulated NeuronCore, as a ScriptModule.

The distribution in `sdk/` offers all of this under the vendor's name, `torch_neuronx`. Names are imported when they are
first used; `optimum_neuron.tracing.ops` registers the operators that a saved model needs.

    >>> from optimum_neuron import tracing
    >>> "trace" in tracing.__all__
    True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .analysis import analyze
    from .buckets import BucketModelConfig, bucket_model_trace
    from .contexts import disable_nrt_load, multicore_context, neuron_cores_context
    from .data_parallel import DataParallel
    from .partition import PartitionerConfig
    from .placement import async_load, dynamic_batch, lazy_load, set_multicore, set_neuron_cores, wait_for_host_code
    from .profiler import profile
    from .tracer import trace
    from .weights import move_trace_to_device, replace_weights

__all__ = [
    "BucketModelConfig",
    "DataParallel",
    "PartitionerConfig",
    "analyze",
    "async_load",
    "bucket_model_trace",
    "disable_nrt_load",
    "dynamic_batch",
    "lazy_load",
    "move_trace_to_device",
    "multicore_context",
    "neuron_cores_context",
    "profile",
    "replace_weights",
    "set_multicore",
    "set_neuron_cores",
    "trace",
    "wait_for_host_code",
]

_MODULES = {
    "BucketModelConfig": "buckets",
    "DataParallel": "data_parallel",
    "PartitionerConfig": "partition",
    "analyze": "analysis",
    "async_load": "placement",
    "bucket_model_trace": "buckets",
    "disable_nrt_load": "contexts",
    "dynamic_batch": "placement",
    "lazy_load": "placement",
    "move_trace_to_device": "weights",
    "multicore_context": "contexts",
    "neuron_cores_context": "contexts",
    "profile": "profiler",
    "replace_weights": "weights",
    "set_multicore": "placement",
    "set_neuron_cores": "placement",
    "trace": "tracer",
    "wait_for_host_code": "placement",
}

__getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
