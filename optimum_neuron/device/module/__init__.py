"""`torch.neuron`: the device module that torch and its users know, with the names of `torch.cuda`.

The parts: `devices.py` (which device, its properties), `memory.py`, `streams.py`, `random.py`, `amp.py`, `eager.py`
(Adaptive Eager Execution). Names that need no device, such as `device_count` and `manual_seed`, build and load nothing.

    import torch
    torch.neuron.get_device_properties(0).name
"""

from __future__ import annotations

import importlib
from typing import Any

from . import amp
from .amp import get_amp_supported_dtype, is_bf16_supported
from .devices import (
    NeuronDeviceProperties,
    _exchange_device as _exchange_device,
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_init as _lazy_init,
    _maybe_exchange_device as _maybe_exchange_device,
    current_device,
    device,
    device_count,
    device_of,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_initialized,
    set_device,
    synchronize,
)
from .eager import EagerStatistics, adaptive_eager, eager_statistics, reset_eager_statistics
from .memory import (
    OutOfMemoryError,
    empty_cache,
    ipc_collect,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    memory_usage,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
)
from .random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

_OF_INF1 = ("DataParallel", "Optimization", "analyze_model", "experimental", "get_supported_operations", "trace")
"""Names that `torch.neuron` has in torch-neuron, the vendor's package for Inf1; the door of that name has them."""
_STREAM_NAMES = ("Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream")

__all__ = [
    "CompileReport",
    "EagerStatistics",
    "Event",
    "NeuronDeviceProperties",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "adaptive_eager",
    "amp",
    "compile_report",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "eager_statistics",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "reset_accumulated_memory_stats",
    "reset_eager_statistics",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    # torch's checkpointing reads `_initialized` before it saves random states.
    if name == "_initialized":
        return is_initialized()
    if name in _STREAM_NAMES:
        from . import streams

        return getattr(streams, name)
    if name in ("CompileReport", "compile_report"):
        from ..dynamo import report

        return getattr(report, name)
    if name in _OF_INF1:
        return getattr(importlib.import_module("torch_neuron"), name)
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
