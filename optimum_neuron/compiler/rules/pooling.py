"""Pooling and resizing: windows may not be dilated."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table

table(
    "resize",
    {
        "ResizeBilinear": "upsample_bilinear2d",
        "ResizeNearest": "upsample_nearest1d upsample_nearest2d",
    },
)

table(
    "average-pool-backward",
    {
        "Pad ReduceWindow": "_adaptive_avg_pool2d_backward avg_pool2d_backward avg_pool3d_backward",
    },
)

table(
    "average-pool",
    {
        "ReduceWindow Div": (
            "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
            "avg_pool1d avg_pool2d avg_pool3d"
        ),
    },
)


table("adaptive-max-pool", {"ReduceWindow": "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"})


@rule(
    "max-pool",
    "max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices",
    "prims._low_memory_max_pool_with_offsets",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse max pooling with a dilated window."""
    dilation = call.arguments["dilation"]
    largest = max(dilation) if isinstance(dilation, (list, tuple)) else dilation
    if largest > 1:
        return refuse(call, "max-pool", "NCC_EVRF018", f"the window has dilation {largest}")
    return accept(call, "max-pool", "ReduceWindow")
