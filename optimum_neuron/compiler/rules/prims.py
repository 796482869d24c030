"""Operators that Inductor's decompositions leave in the graphs of `torch.compile`."""

from __future__ import annotations

from .base import table

table(
    "prims",
    {
        "prims._low_memory_max_pool_offsets_to_indices": "Iota Mul Add",
        "prims.convert_element_type": "ConvertElementType",
        "prims.device_put": "",
        "prims.fma": "Mul Add",
        "prims.inductor_force_stride_order": "",
        "prims.iota": "Iota",
    },
)

table(
    "random-prims",
    {
        "prims.inductor_lookup_seed": "",
        "prims.inductor_randint": "RngUniform Floor ConvertElementType",
        "prims.inductor_random": "RngUniform",
        "prims.inductor_seed": "",
        "prims.inductor_seeds": "",
    },
    touches_data=False,
)
