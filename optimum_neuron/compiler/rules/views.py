"""Operators that only change shape, layout or dtype, or move elements without computing.

Which dtypes a cast may name is checked in `dtypes.py`; the cost of a layout change is the simulator's business.
"""

from __future__ import annotations

from .base import table

table(
    "view",
    {
        "aten._reshape_alias": "Reshape",
        "aten._unsafe_view": "Reshape",
        "aten.alias": "",
        "aten.broadcast_to": "Broadcast",
        "aten.chunk": "Slice",
        "aten.clone": "",
        "aten.contiguous": "",
        "aten.detach": "",
        "aten.diagonal": "Gather",
        "aten.expand": "Broadcast",
        "aten.expand_as": "Broadcast",
        "aten.flatten": "Reshape",
        "aten.lift_fresh": "",
        "aten.lift_fresh_copy": "",
        "aten.movedim": "Transpose",
        "aten.narrow": "Slice",
        "aten.permute": "Transpose",
        "aten.pixel_shuffle": "Reshape Transpose",
        "aten.reshape": "Reshape",
        "aten.select": "Slice",
        "aten.slice": "Slice",
        "aten.split": "Slice",
        "aten.split_with_sizes": "Slice",
        "aten.squeeze": "Reshape",
        "aten.t": "Transpose",
        "aten.transpose": "Transpose",
        "aten.unbind": "Slice",
        "aten.unflatten": "Reshape",
        "aten.unsqueeze": "Reshape",
        "aten.view": "Reshape",
        "aten.view_as": "Reshape",
    },
)

table(
    "movement",
    {
        "aten.as_strided": "Iota Gather",
        "aten.cat": "Concatenate",
        "aten.constant_pad_nd": "Pad",
        "aten.flip": "Iota Gather",
        "aten.pad": "Pad",
        "aten.reflection_pad1d": "Iota Gather",
        "aten.reflection_pad2d": "Iota Gather",
        "aten.reflection_pad3d": "Iota Gather",
        "aten.repeat": "Broadcast Reshape",
        "aten.repeat_interleave": "Broadcast Reshape",
        "aten.replication_pad2d": "Iota Gather",
        "aten.replication_pad3d": "Iota Gather",
        "aten.roll": "Slice Concatenate",
        "aten.stack": "Reshape Concatenate",
        "aten.tril": "Iota Compare Select",
        "aten.triu": "Iota Compare Select",
        "aten.unfold": "Iota Gather",
    },
)

table(
    "cast",
    {
        "aten._to_copy": "ConvertElementType",
        "aten.to": "ConvertElementType",
        "aten.type_as": "ConvertElementType",
    },
)
