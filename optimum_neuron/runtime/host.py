"""Threads and memory of the host: settings of libraries below Python.

GNU's OpenMP, which torch has on Linux, keeps a team of threads for every thread that ever ran an operator in parallel.
As soon as there are more of them than cores, threads no longer wait for each other actively but sleep, also in the only
team that works: 8 rows of SmolLM2 then took 30 ms a step instead of 19.

glibc returns large blocks of memory at once, and the system hands out zeroed pages one fault at a time: a tenth of the
time of a MiniLM with 32 sentences. Blocks of more than 32 MiB stay of that kind. If they were not, the heap would be
one mapping that never shrinks below its last block, and `fork`, as in the workers of a DataLoader, fails once a single
mapping is larger than the memory of the machine. It does not depend on programs; simulated HBM is `hbm.py`'s.

    rest_threads()      # this thread leaves the work to others; its next parallel operator starts a team again
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_SOFT = 1
"""omp.h: `omp_pause_soft`, which keeps what threads have stored."""


def rest_threads() -> bool:
    """End the calling thread's team; False if it is within a parallel operator, or torch has no OpenMP that can."""
    pause = _pause()
    return pause is not None and pause(_SOFT) == 0


@functools.cache
def _pause() -> Any:
    """The function of the OpenMP that torch is linked with."""
    from ..upstream.torch import C

    return getattr(ctypes.CDLL(C.__file__), "omp_pause_resource_all", None)


KEPT_BYTES = 512 * 1024**2
"""Free memory at the end of the heap that the process keeps."""

_LARGEST_FROM_HEAP = 32 * 1024**2  # glibc takes no larger value
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Set it for this process, once; False where the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
