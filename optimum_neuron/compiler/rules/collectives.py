"""Collectives inside a compiled graph. The published list has two; the others are described as made of these."""

from __future__ import annotations

from .base import table

table(
    "collective",
    {
        "Allgather": "_c10d_functional.all_gather_into_tensor _c10d_functional.all_gather_into_tensor_coalesced "
        "neuron.all_gather",
        "Allreduce": "_c10d_functional.all_reduce _c10d_functional.all_reduce_coalesced neuron.all_reduce",
        "Allgather Slice": "_c10d_functional.all_to_all_single _c10d_functional.broadcast",
        "Allreduce Slice": "_c10d_functional.reduce_scatter_tensor _c10d_functional.reduce_scatter_tensor_coalesced "
        "neuron.reduce_scatter",
    },
)

table("rank", {"": "neuron.rank"})
table("wait-for-collective", {"": "_c10d_functional.wait_tensor"})
