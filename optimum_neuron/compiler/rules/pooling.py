"""Pooling and resizing: windows may not be dilated."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table

table(
    "resize",
    {
        "aten.upsample_bilinear2d": "ResizeBilinear",
        "aten.upsample_nearest1d": "ResizeNearest",
        "aten.upsample_nearest2d": "ResizeNearest",
    },
)

table(
    "average-pool-backward",
    {
        "aten._adaptive_avg_pool2d_backward": "Pad ReduceWindow",
        "aten.avg_pool2d_backward": "Pad ReduceWindow",
        "aten.avg_pool3d_backward": "Pad ReduceWindow",
    },
)

table(
    "average-pool",
    {
        "aten._adaptive_avg_pool2d": "ReduceWindow Div",
        "aten._adaptive_avg_pool3d": "ReduceWindow Div",
        "aten.adaptive_avg_pool1d": "ReduceWindow Div",
        "aten.adaptive_avg_pool2d": "ReduceWindow Div",
        "aten.adaptive_avg_pool3d": "ReduceWindow Div",
        "aten.avg_pool1d": "ReduceWindow Div",
        "aten.avg_pool2d": "ReduceWindow Div",
        "aten.avg_pool3d": "ReduceWindow Div",
    },
)


table(
    "adaptive-max-pool",
    {
        "aten.adaptive_max_pool1d": "ReduceWindow",
        "aten.adaptive_max_pool2d": "ReduceWindow",
        "aten.adaptive_max_pool3d": "ReduceWindow",
    },
)


@rule(
    "max-pool",
    "aten.max_pool1d",
    "aten.max_pool1d_with_indices",
    "aten.max_pool2d",
    "aten.max_pool2d_with_indices",
    "aten.max_pool3d",
    "aten.max_pool3d_with_indices",
    "prims._low_memory_max_pool_with_offsets",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse max pooling with a dilated window."""
    dilation = call.arguments["dilation"]
    largest = max(dilation) if isinstance(dilation, (list, tuple)) else dilation
    if largest > 1:
        return refuse(call, "max-pool", "NCC_EVRF018", f"the window has dilation {largest}")
    return accept(call, "max-pool", "ReduceWindow")
