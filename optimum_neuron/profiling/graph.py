"""Profile of a graph: the work and the simulated times of one call, by operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from .operators import OperatorTime


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphProfile:
    """One entry point of a program, on however many cores; times and amounts are of one call."""

    model: str
    graph: str
    """Entry point."""
    instance: str
    kind: str
    """Class of model, which decides the interval."""
    num_calls: int
    device_us: float
    launch_us: float
    """Part of `device_us` that starts the call."""
    parts_us: Mapping[str, float]
    """Time of each engine; tensor and DMA overlap."""
    limited_by: str
    path_us: float
    """Simulated host time that an instance adds to a call."""
    low: float
    """Lower end of the 80 % interval of device and host together, as a factor."""
    high: float
    """Upper end of the interval, as a factor."""
    flops: int
    """Operations of matmuls."""
    hbm_bytes: int
    """Lower bound of the bytes read from HBM."""
    operators: tuple[OperatorTime, ...]
    """Operators in the order of the graph."""

    @property
    def total_us(self) -> float:
        """Device and host time of a call, as estimated."""
        return self.device_us + self.path_us

    @property
    def num_unknown(self) -> int:
        """Operators whose work is not known: counted, without a time."""
        return sum(one.is_unknown for one in self.operators)
