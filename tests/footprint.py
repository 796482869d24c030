"""Resources of this process: resident memory, live tensors, file descriptors, and threads. Leaks show as growth.

before = footprint()
for _ in range(100):
    model(x)
print(footprint().num_tensors - before.num_tensors)
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Footprint:
    """Counts at one moment, after garbage collection."""

    resident_bytes: int
    """Resident memory, after the C library has returned its free pages to the kernel."""
    num_tensors: int
    """Python objects that are tensors."""
    num_descriptors: int
    """Open file descriptors."""
    num_threads: int
    """Threads of Python and of native libraries."""


def footprint() -> Footprint:
    """Collect garbage, then count."""
    import torch

    gc.collect()
    # By type: `isinstance` would run code of proxies that live at this moment.
    num_tensors = sum(issubclass(type(value), torch.Tensor) for value in gc.get_objects())
    ctypes.CDLL(None).malloc_trim(0)
    return Footprint(
        resident_bytes=int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        num_tensors=num_tensors,
        num_descriptors=len(os.listdir("/proc/self/fd")),
        num_threads=len(os.listdir("/proc/self/task")),
    )
