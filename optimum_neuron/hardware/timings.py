"""Published cycle costs of the engines, DMA and collectives.

Only documented figures, nothing fitted to measurements: fits belong to the simulator. The Trainium2 and Trainium3
guides list changes to the Trainium/Inferentia2 guide, so figures that they do not mention are carried over.

    >>> from optimum_neuron.hardware import resolve_target
    >>> timing = resolve_target("trn2").value.timing
    >>> timing.matmul_min_cycles, timing.fp32_matmul_factor
    (64, 4)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from . import documents as doc
from .specs import Sourced, cite, revised


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreTiming(Sourced):
    """Cycle costs of one core generation. Cycles are of the engine in the field's name."""

    matmul_min_cycles: int
    """A matmul instruction with N moving columns takes max(N, this) tensor-engine cycles."""
    fp32_matmul_factor: int
    """Factor by which a float32 matmul is slower."""
    load_stationary_cycles: int
    """Loading 128 stationary columns; hidden behind the previous matmul."""
    vector_cycles_per_element: Mapping[int, int] = dataclasses.field(hash=False)
    """Vector-engine cycles per element and partition by number of float32 inputs."""
    vector_speedup: Mapping[str, int] = dataclasses.field(hash=False)
    """16-bit performance mode of the vector engine by case; empty where there is none."""
    sram_access_cycles: int
    """Start of an access to SBUF or PSUM: a result is there so much later than the engine is free again."""
    min_interval_cycles: int
    """Cycles of the shortest instruction of the vector and scalar engines."""
    gpsimd_start_cycles: int
    """Start of an instruction of GpSimd."""
    scalar_dependent_cycles: int
    """Cycles of a shortest instruction of the scalar engine that needs the result of the one before."""
    dependent_instruction_cycles: int
    """Added to a small instruction, or to one that waits for the previous result."""
    scalar_accumulator_cycles: int
    """Reading the scalar engine's accumulator."""
    strided_rate: float
    """Share of the SBUF rate that is left when the inner stride exceeds `stride_limit_bytes`."""
    stride_limit_bytes: int
    """Largest inner stride at full rate."""
    dma_start_ns: float
    """Fixed cost of a DMA transfer."""
    dma_peak_bytes_per_s: float
    """Rate at which a DMA engine moves the bytes of a descriptor; the rest of its time is a fixed part."""
    dma_saturating_bytes: int
    """Contiguous bytes per partition from which DMA runs at its full rate."""
    dma_recommended_bytes: int
    """Smallest recommended number of contiguous bytes per partition."""
    dma_descriptor_ns: float | None
    """One DMA instruction through the descriptor engine; None where there is no such engine."""
    dma_transpose_rate: Mapping[str, float] = dataclasses.field(hash=False)
    """Share of the DMA rate that a transposing transfer reaches, by path; empty where DMA cannot transpose."""
    collective_hop_us: tuple[float, float]
    """One hop of a ring inside a server, from and to."""
    server_step_us: float | None
    """One step between servers, per rank; published for Trainium2."""


_V2 = CoreTiming(
    matmul_min_cycles=64,
    fp32_matmul_factor=4,
    load_stationary_cycles=32,
    vector_cycles_per_element={1: 1, 2: 2},
    vector_speedup={},
    sram_access_cycles=60,
    min_interval_cycles=64,
    gpsimd_start_cycles=150,
    scalar_dependent_cycles=266,
    dependent_instruction_cycles=100,
    scalar_accumulator_cycles=64,
    strided_rate=0.5,
    stride_limit_bytes=16,
    dma_start_ns=1300.0,
    dma_peak_bytes_per_s=27.2e9,
    dma_saturating_bytes=4096,
    dma_recommended_bytes=2048,
    dma_descriptor_ns=None,
    dma_transpose_rate={},
    collective_hop_us=(1.0, 2.0),
    server_step_us=None,
    sources=cite(
        {
            doc.NKI_V2: "matmul_min_cycles fp32_matmul_factor vector_cycles_per_element sram_access_cycles "
            "dependent_instruction_cycles scalar_accumulator_cycles strided_rate stride_limit_bytes",
            f"{doc.NKI_V2}: up to 4x faster than a matmul of 128 columns": "load_stationary_cycles",
            doc.NKI_ISA: "min_interval_cycles gpsimd_start_cycles",
            f"{doc.NKI_PERFORMANCE}, measured on NeuronCore-v3": "scalar_dependent_cycles",
            doc.NKI_DMA: "dma_start_ns dma_saturating_bytes dma_recommended_bytes",
            doc.NKI_DMA_OVERVIEW: "dma_peak_bytes_per_s",
            f"{doc.NKI_V3}: new in NeuronCore-v3": "vector_speedup dma_descriptor_ns dma_transpose_rate",
            doc.INTRANODE: "collective_hop_us",
            doc.NOT_PUBLISHED: "server_step_us",
        }
    ),
)

_V3 = revised(
    _V2,
    {
        doc.NKI_V3: "vector_speedup dma_descriptor_ns dma_transpose_rate",
        f"{doc.INTERNODE}, 50 Gbit/s per rank": "server_step_us",
    },
    vector_speedup={"copy_or_scalar_contiguous": 4, "copy_or_scalar_strided_or_psum": 2, "two_tensors_sbuf": 2},
    dma_descriptor_ns=600.0,
    dma_transpose_rate={"hbm_to_sbuf": 0.9, "sbuf_to_sbuf": 0.5},
    server_step_us=15.0,
)

_CARRIED_OVER = f"{doc.NKI_V3}, carried over by the Trainium3 guide"
_V4 = revised(
    _V3,
    {
        doc.NKI_DMA_OVERVIEW: "dma_peak_bytes_per_s",
        _CARRIED_OVER: "vector_speedup dma_descriptor_ns dma_transpose_rate",
        doc.NOT_PUBLISHED: "server_step_us",
    },
    dma_peak_bytes_per_s=38.4e9,
    server_step_us=None,
)

TIMINGS: Mapping[int, CoreTiming] = {2: _V2, 3: _V3, 4: _V4}
"""Timings by core generation; none is published for generation 1."""
