"""Operators that only change shape, layout or dtype, or move elements without computing.

Which dtypes a cast may name is checked in `judge.py`; the cost of a layout change is the simulator's business.
"""

from __future__ import annotations

from .base import table

table(
    "view",
    {
        "Reshape": "_reshape_alias _unsafe_view flatten reshape squeeze unflatten unsqueeze view view_as",
        "": "alias clone contiguous detach lift_fresh lift_fresh_copy",
        "Broadcast": "broadcast_to expand expand_as",
        "Slice": "chunk narrow select slice split split_with_sizes unbind",
        "Gather": "diagonal",
        "Transpose": "movedim permute t transpose",
        "Reshape Transpose": "pixel_shuffle",
    },
)

table(
    "movement",
    {
        "Iota Gather": (
            "as_strided flip prims.rev reflection_pad1d reflection_pad2d reflection_pad3d replication_pad2d "
            "replication_pad3d unfold"
        ),
        "Concatenate": "cat",
        "Pad": "constant_pad_nd pad",
        "Broadcast Reshape": "repeat repeat_interleave",
        "Slice Concatenate": "roll",
        "Reshape Concatenate": "stack",
        "Iota Compare Select": "tril triu",
    },
)

table("cast", {"ConvertElementType": "_to_copy to type_as"})
