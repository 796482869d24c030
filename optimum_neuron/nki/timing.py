"""The simulated time of a stream on a target, and the engines that it takes: what estimates and profiles add up.

time = kernel_time(key, "trn2")
time.total_us, time.busy_us["tensor"]
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..hardware import resolve_target
from .analysis import Analysis, analysis_of
from .calls import stream_of
from .core import Core, Grid
from .streams import record

if TYPE_CHECKING:
    from .streams import Stream


_EXECUTED: dict[str, Core] = {}
"""Launches whose instructions were recorded, by key."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelTime:
    """One launch on one core, or on the first core of its grid."""

    total_us: float
    """Time until the last result is there."""
    busy_us: Mapping[str, float]
    matmul_flop: int
    """Operations of matmuls on all cores of the grid, without transposes."""
    hbm_bytes: int
    """Bytes from and to HBM, of all cores."""


def analyze_stream(stream: Stream, target: str | None = None) -> Analysis:
    """Return what a stream does on a target; None is the one that it was traced for."""
    return analysis_of(stream.name, [record(stream, resolve_target(target or stream.target).value)], None)


def remember(name: str, core: Core) -> str:
    """Keep the instructions that a launch executed, which may depend on values, and return their key."""
    key = f"{name}@{len(_EXECUTED)}"
    _EXECUTED[key] = Core(target=core.target, grid=Grid(shape=core.grid.shape), stream=core.stream)
    return key


@functools.lru_cache(maxsize=64)
def analysis_of_kernel(key: str, target: str) -> Analysis:
    """Return the analysis of a kernel of this process on a target; a launch on a device has its own target."""
    core = _EXECUTED.get(key)
    return analyze_stream(stream_of(key), target) if core is None else analysis_of(key.partition("@")[0], [core], None)


@functools.cache
def kernel_time(key: str, target: str) -> KernelTime:
    """Return the time of a kernel of this process on a target."""
    analysis = analysis_of_kernel(key, target)
    cores = math.prod(_EXECUTED[key].grid.shape if key in _EXECUTED else stream_of(key).grid)
    return KernelTime(
        total_us=analysis.total_us,
        busy_us=dict(analysis.busy_us),
        matmul_flop=cores * analysis.roofline.matmul_flop,
        hbm_bytes=cores * analysis.roofline.hbm_bytes,
    )
