"""Give the OpenMP threads of the calling thread back when another one computes from now on.

GNU's OpenMP, which torch has on Linux, keeps a team of threads for every thread that ever ran an operator in parallel.
As soon as there are more of them than cores, threads no longer wait for each other actively but sleep, also in the only
team that works: 8 rows of SmolLM2 then took 30 ms a step instead of 19. It does not depend on programs.

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
