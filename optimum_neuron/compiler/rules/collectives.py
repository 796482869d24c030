"""Collectives inside a compiled graph. The published list has two; the others are told as made of these."""

from __future__ import annotations

from .base import table

table(
    "collective",
    {
        "_c10d_functional.all_gather_into_tensor": "Allgather",
        "_c10d_functional.all_gather_into_tensor_coalesced": "Allgather",
        "_c10d_functional.all_reduce": "Allreduce",
        "_c10d_functional.all_reduce_coalesced": "Allreduce",
        "_c10d_functional.all_to_all_single": "Allgather Slice",
        "_c10d_functional.broadcast": "Allgather Slice",
        "_c10d_functional.reduce_scatter_tensor": "Allreduce Slice",
        "_c10d_functional.reduce_scatter_tensor_coalesced": "Allreduce Slice",
    },
)

table("wait-for-collective", {"_c10d_functional.wait_tensor": ""})
