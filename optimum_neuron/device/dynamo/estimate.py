"""The work of a graph, and the least time that it can take on a target.

Products are counted by torch's formulas for operators; bytes are what a graph has to read and write at least: its
inputs and its results. The time is a roofline (Williams et al. 2009): the larger of operations over the peak rate and
bytes over the bandwidth, on one core. It is a bound and not a forecast: no engine other than TensorE is counted, and
nothing that is left in between is moved.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...hardware import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Work of one graph on one core of a target; the times are simulated."""

    target: str
    """Name of the target."""
    num_flops: dict[str, int]
    """Floating-point operations of matrix products and convolutions, by the dtype of their operands."""
    size_bytes: int
    """Inputs and results."""
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


def estimate(graph_module: Any, target: Target) -> Estimate:
    """Count a graph whose nodes have fake values."""
    num_flops = flops_by_dtype(graph_module)
    compute_s = sum(count / (peak_tflops(target, dtype) * 1e12) for dtype, count in num_flops.items())
    size_bytes = _border_bytes(graph_module)
    return Estimate(
        target=target.name,
        num_flops=num_flops,
        size_bytes=size_bytes,
        compute_us=1e6 * compute_s,
        memory_us=1e6 * size_bytes / target.hbm_bytes_per_s_per_core(),
    )


def flops_by_dtype(graph_module: Any) -> dict[str, int]:
    """Floating-point operations by the dtype of the first operand, as torch.utils.flop_counter counts them."""
    import torch
    from torch.utils._pytree import tree_map_only
    from torch.utils.flop_counter import flop_registry

    found: dict[str, int] = {}
    for node in graph_module.graph.nodes:
        count = flop_registry.get(getattr(node.target, "overloadpacket", None))
        if node.op != "call_function" or count is None:
            continue
        args, kwargs = tree_map_only(torch.fx.Node, lambda n: n.meta.get("val"), (node.args, node.kwargs))
        dtype = str(next(a.dtype for a in args if isinstance(a, torch.Tensor))).removeprefix("torch.")
        found[dtype] = found.get(dtype, 0) + int(count(*args, **kwargs, out_val=node.meta["val"]))
    return found


def peak_tflops(target: Target, dtype: str) -> float:
    """Published peak of TensorE of one logical core; a dtype without a published rate has that of float32."""
    rates = target.core.tensor.tflops
    return rates.get(dtype, rates["float32"]) * target.chip.default_lnc


def _border_bytes(graph_module: Any) -> int:
    import torch

    nodes = list(graph_module.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    results = {node for node in nodes[-1].all_input_nodes if node.op != "placeholder"}
    values = [node.meta.get("val") for node in (*inputs, *results)]
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))
