"""Where the cost of each instruction is from: the formula of its cycles, and the document, or that none publishes it.

>>> from optimum_neuron.nki import COSTS
>>> COSTS["tensor_tensor_scan"].formula
'max(64, 2 N)'
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..hardware import documents as doc

ASSUMED = f"{doc.NOT_PUBLISHED}; assumed"


@dataclasses.dataclass(frozen=True)
class InstructionCost:
    """The cost of one instruction."""

    engine: str
    """Engines that it is of."""
    formula: str
    """Cycles of the engine for N elements in a partition; nanoseconds for DMA."""
    source: str
    """Public document, or that the cost is assumed."""

    @property
    def is_published(self) -> bool:
        """Whether a document has the formula."""
        return not self.source.startswith(doc.NOT_PUBLISHED)


_ISA = doc.NKI_ISA
_BOTH = f"{doc.NKI_ISA}; {doc.NKI_V3}: 16-bit modes"

COSTS: Mapping[str, InstructionCost] = {
    name: InstructionCost(*row)
    for name, row in {
        "nc_matmul": ("tensor", "max(min(64, stationary), moving), 4 times as many in float32", _ISA),
        "nc_matmul_mx": ("tensor", "max(64, moving)", ASSUMED),
        "nc_transpose": ("tensor, vector", "max(P, min(64, N)); vector: max(64, N)", _ISA),
        "activation": ("scalar", "max(64, N), 64 more with a reduction", _ISA),
        "activate2": ("scalar", "max(64, N)", ASSUMED),
        "exponential": ("vector", "max(64, N)", ASSUMED),
        "tensor_tensor": ("vector, gpsimd", "max(64, N), 2 N on v2 for two float32 tiles in SBUF", _BOTH),
        "tensor_scalar": ("vector, scalar, gpsimd", "max(64, N); 16-bit: N / 4 or N / 2 from v3 on", _BOTH),
        "scalar_tensor_tensor": ("vector", "max(64, 2 N), N for bfloat16 that is subtracted or multiplied", _ISA),
        "tensor_tensor_scan": ("vector", "max(64, 2 N)", _ISA),
        "reciprocal": ("vector", "max(64, 8 N)", _ISA),
        "tensor_reduce": ("vector", "max(64, N), N / 2 for sums and maxima of bfloat16", _ISA),
        "tensor_partition_reduce": ("gpsimd", "150 + N", ASSUMED),
        "tensor_scalar_reduce": ("vector", "max(64, N) + 64", _ISA),
        "tensor_scalar_cumulative": ("vector", "max(64, N)", ASSUMED),
        "tensor_copy": ("vector, scalar, gpsimd", "max(64, N); 16-bit: N / 4 or N / 2 from v3 on", _BOTH),
        "tensor_copy_predicated": ("vector", "max(64, N), 2 N with all tiles in SBUF", _ISA),
        "memset": ("vector, gpsimd", "max(64, N), N / 2 for 16-bit zeros", _ISA),
        "iota": ("gpsimd", "150 + N", _ISA),
        "affine_select": ("gpsimd", "150 + N", _ISA),
        "range_select": ("vector", "max(64, N)", _ISA),
        "select_reduce": ("vector", "max(64, N), 2 N on v2 in float32", ASSUMED),
        "bn_stats": ("vector", "max(64, N)", _ISA),
        "bn_aggr": ("vector", "max(64, 13 N / 3)", _ISA),
        "dropout": ("vector", "max(64, N)", _ISA),
        "rng": ("vector, gpsimd", "max(64, N); gpsimd: 150 + N", ASSUMED),
        "rand2": ("vector", "max(64, N)", ASSUMED),
        "set_rng_seed": ("vector", "max(64, N)", ASSUMED),
        "rand_get_state": ("gpsimd, vector", "150 + N; vector: max(64, N)", ASSUMED),
        "rand_set_state": ("gpsimd, vector", "150 + N; vector: max(64, N)", ASSUMED),
        "max8": ("vector", "max(64, N)", _ISA),
        "nc_find_index8": ("vector", "max(64, N)", _ISA),
        "nc_match_replace8": ("vector", "max(64, N)", _ISA),
        "topk": ("gpsimd", "4 n + k", "Neuron docs, NKI, nki.isa.topk"),
        "nc_n_gather": ("gpsimd", "N and 60 for each 512 of them", ASSUMED),
        "local_gather": ("gpsimd", "150 + indices * elements / C", _ISA),
        "nc_stream_shuffle": ("vector", "max(64, N)", _ISA),
        "quantize_mx": ("vector", "max(64, N)", ASSUMED),
        "nonzero_with_count": ("gpsimd", "150 + N", ASSUMED),
        "sequence_bounds": ("gpsimd", "150 + N", ASSUMED),
        "register_load": ("sync", "60", ASSUMED),
        "register_store": ("sync", "60", ASSUMED),
        "core_barrier": ("any", "100", ASSUMED),
        "sendrecv": ("dma", "bytes at the rate of GpSimd's DMA, or as dma_copy", doc.NKI_V3),
        "dma_copy": ("dma", "1300 ns, then each run at the peak rate and a fixed part", doc.NKI_DMA),
        "dma_transpose": ("dma", "as dma_copy, at 90 % of its rate from HBM and 50 % from SBUF", doc.NKI_V3),
        "dma_compute": ("dma", "as one dma_copy for each source", ASSUMED),
    }.items()
}
"""Costs by opcode. N is the number of elements in a partition, P the number of partitions."""
