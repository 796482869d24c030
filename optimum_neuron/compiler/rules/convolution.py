"""Operators with a window: convolutions, pooling, resizing."""

from __future__ import annotations

from typing import Any

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table


@rule("convolution", "_convolution conv1d conv2d conv3d convolution")
@rule("transposed-convolution", "conv_transpose1d conv_transpose2d conv_transpose3d")
@rule("convolution-backward", "convolution_backward")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a convolution that dilates both its input, as a transposed one does by its stride, and its kernel."""
    dilates_input = bool(call.arguments.get("transposed")) or "conv_transpose" in call.name
    if call.name == "aten.convolution_backward":  # the gradient of an input is a transposed convolution
        dilates_input = not dilates_input and call.arguments["output_mask"][0]
    stride, dilation = _largest(call.arguments["stride"]), _largest(call.arguments["dilation"])
    if dilates_input and stride > 1 and dilation > 1:
        reason = f"stride {stride} spreads the input while dilation {dilation} spreads the kernel"
        return refuse(call, "NCC_EVRF010", reason)
    return accept(call, "Convolution")


def _largest(value: Any) -> int:
    return max(value) if isinstance(value, (list, tuple)) else int(value)


_AVERAGES = (
    "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
    "avg_pool1d avg_pool2d avg_pool3d"
)
_GRADIENTS = "_adaptive_avg_pool2d_backward avg_pool2d_backward avg_pool3d_backward"

table("resize", {"ResizeBilinear": "upsample_bilinear2d", "ResizeNearest": "upsample_nearest1d upsample_nearest2d"})
table("average-pool", {"ReduceWindow Div": _AVERAGES})
table("average-pool-backward", {"Pad ReduceWindow": _GRADIENTS})
table("adaptive-max-pool", {"ReduceWindow": "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"})


@rule(
    "max-pool",
    "max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices",
    "prims._low_memory_max_pool_with_offsets",
)
def judge_max_pool(call: OpCall, target: Target) -> Ruling:
    """Refuse max pooling with a dilated window."""
    if (dilation := _largest(call.arguments["dilation"])) > 1:
        return refuse(call, "NCC_EVRF018", f"the window has dilation {dilation}")
    return accept(call, "ReduceWindow")
