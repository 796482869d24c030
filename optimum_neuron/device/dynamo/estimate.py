"""The work of a graph, and the least time that it can take on a target.

Matmuls are counted as in the simulator; bytes are the minimum that a graph has to read and write: its inputs and its
results. The time is a roofline (Williams et al. 2009): the larger of operations over the peak rate and bytes over the
bandwidth, on one core. It is a bound and not a forecast: no engine other than TensorE is counted, and nothing that is
left in between is moved. The time that profiles and tools show of a call is the one of the whole simulator
(`work_of_calls`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ...hardware import Target
from ...simulator.work import GraphWork, border_bytes, flops_by_dtype, work_on_device

if TYPE_CHECKING:
    from torch import fx


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Work of one graph on one core of a target; the times are simulated."""

    target: str
    num_flops: dict[str, int]
    """Floating-point operations of matrix products and convolutions, by the dtype of their operands."""
    size_bytes: int
    """Bytes of inputs and results."""
    compute_us: float
    """Operations over the peak rate of TensorE."""
    memory_us: float
    """Bytes over the HBM bandwidth of a core."""

    @property
    def least_us(self) -> float:
        """Lower bound of the time of a call, simulated."""
        return max(self.compute_us, self.memory_us)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, labelled."""
        assumptions = "roofline bound on one core: peak rate of TensorE, HBM bandwidth, inputs and results moved once"
        return dataclasses.asdict(self) | {"least_us": self.least_us, "simulated": True, "assumptions": assumptions}


def estimate(graph_module: fx.GraphModule, target: Target) -> Estimate:
    """Count a graph whose nodes have fake values."""
    num_flops = flops_by_dtype(graph_module)
    compute_s = sum(count / (peak_tflops(target, dtype) * 1e12) for dtype, count in num_flops.items())
    size_bytes = border_bytes(graph_module)
    return Estimate(
        target=target.name,
        num_flops=num_flops,
        size_bytes=size_bytes,
        compute_us=1e6 * compute_s,
        memory_us=1e6 * size_bytes / target.hbm_bytes_per_s_per_core(),
    )


def work_of_calls(graph_module: fx.GraphModule) -> GraphWork:
    """Count the work of a call, operator by operator, for its simulated time (`simulator/clock.py`).

    Module paths stay in it; source lines do not, because they would change the keys of torch's caches.
    """
    work = work_on_device(graph_module)
    return dataclasses.replace(work, steps=tuple(dataclasses.replace(step, source_line="") for step in work.steps))


def peak_tflops(target: Target, dtype: str) -> float:
    """Published peak of TensorE of one logical core; a dtype without a published rate has that of float32."""
    rates = target.core.tensor.tflops
    return rates.get(dtype, rates["float32"]) * target.chip.default_lnc
