"""Keep memory that intermediate results used for the next call, instead of giving it back to the system each time.

glibc returns large blocks at once, and the system hands out zeroed pages one fault at a time: a tenth of the time of a
MiniLM with 32 sentences. Blocks of more than 32 MiB stay of that kind. If they were not, the heap would be one mapping
that never shrinks below its last block, and `fork`, as in the workers of a DataLoader, fails once a single mapping is
larger than the memory of the machine. It does not depend on programs; simulated HBM is `hbm.py`'s.
"""

from __future__ import annotations

import ctypes
import functools

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
