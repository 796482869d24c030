"""HBM of device tensors: current use, peak, and other owners on the core. Bytes are simulated."""

from __future__ import annotations

from typing import Any

import torch
from torch import OutOfMemoryError as OutOfMemoryError

from .. import library
from .devices import Device, _require


def memory_allocated(device: Device = None) -> int:
    """Bytes of the tensors on a device."""
    index = _require(device)
    return library.load().neuron_used_bytes(index)


def max_memory_allocated(device: Device = None) -> int:
    """The most that `memory_allocated` was since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device = None) -> int:
    """The same as `memory_allocated`: HBM is not cached."""
    return memory_allocated(device)


def max_memory_reserved(device: Device = None) -> int:
    """The same as `max_memory_allocated`: HBM is not cached."""
    return max_memory_allocated(device)


def memory_stats(device: Device = None) -> dict[str, Any]:
    """All counters, named as `torch.accelerator.memory_stats` names them."""
    return torch.accelerator.memory_stats(_loaded(device))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Reset peaks."""
    torch.accelerator.reset_peak_memory_stats(_loaded(device))


reset_max_memory_allocated = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Reset sums."""
    torch.accelerator.reset_accumulated_memory_stats(_loaded(device))


def _loaded(device: Device) -> int:
    index = _require(device)
    library.load()
    return index


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Bytes that are free on a device's core, and its HBM. Claims the core."""
    from .. import placement

    core = placement.claim(_require(device))
    return core.available_bytes, core.capacity_bytes


def memory_usage(device: Device = None) -> dict[str, int]:
    """Bytes by category of a device's core: device tensors, and programs that are loaded on it. Claims the core."""
    from .. import placement

    return placement.claim(_require(device)).used_by_category()


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Table of a device's core: owners by category, free bytes, and unless abbreviated the peak. Claims the core."""
    from .. import placement

    index = _require(device)
    table = placement.claim(index).table()
    if abbreviated:
        return table
    return f"{table}\npeak of torch tensors on neuron:{index}: {max_memory_allocated(index) / 2**20:.3f}MB"


def empty_cache() -> None:
    """Return the cached memory of freed tensors to the host's system.

    HBM is not cached: `memory_allocated` does not change.
    """
    library.load()
    torch.accelerator.empty_cache()


def ipc_collect() -> None:
    """Nothing is shared between processes."""
