"""Operators that Inductor's decompositions leave in the graphs of `torch.compile`."""

from __future__ import annotations

from .base import table

table(
    "prims",
    {
        "Iota Mul Add": "prims._low_memory_max_pool_offsets_to_indices",
        "ConvertElementType": "prims.convert_element_type",
        "": "prims.device_put prims.inductor_force_stride_order",
        "Mul Add": "prims.fma",
        "Iota": "prims.iota",
    },
)

table(
    "random-prims",
    {
        "": "prims.inductor_lookup_seed prims.inductor_seed prims.inductor_seeds",
        "RngUniform Floor ConvertElementType": "prims.inductor_randint",
        "RngUniform": "prims.inductor_random",
    },
    touches_data=False,
)
