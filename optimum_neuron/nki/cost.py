"""How long instructions take: published cycle counts of the engines, from `hardware.timings`.

Every figure is cited there. Each function returns cycles of its engine (DMA: nanoseconds) for one instruction that
waits for nothing. Where the guides publish no figure for an instruction, one element for each cycle is assumed; the
function says so. `InstructionCost` has the formula of an instruction, and the document or that none publishes it.

>>> from optimum_neuron.nki import COSTS
>>> COSTS["tensor_tensor_scan"].formula
'max(64, 2 N)'
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from ..hardware import documents as doc
from .core import Access, Core
from .dtypes import FORMATS
from .memory import Buffer
from .tensor import NkiTensor

ASSUMED = f"{doc.NOT_PUBLISHED}; assumed"
ISA = doc.NKI_ISA
SHORT = f"{doc.NKI_ISA}; {doc.NKI_V3}: 16-bit modes"
TOPK = "Neuron docs, NKI, nki.isa.topk"
DMA, V3 = doc.NKI_DMA, doc.NKI_V3


@dataclasses.dataclass(frozen=True)
class InstructionCost:
    """The cost of one instruction. N is the number of elements in a partition, P the number of partitions."""

    engine: str
    formula: str
    """Cycles of the engine for N elements in a partition; nanoseconds for DMA."""
    source: str
    """Public document, or that the cost is assumed."""

    @property
    def is_published(self) -> bool:
        """Whether a document has the formula."""
        return not self.source.startswith(doc.NOT_PUBLISHED)


_SHORT_FLOATS = ("bfloat16", "float16")


def tensor_cycles(core: Core, moving: NkiTensor, *, num_columns: int, num_stationary: int = 128) -> float:
    """Matmul: max(min(64, stationary), moving) columns; 4 times as many cycles in float32. Loads are hidden."""
    timing = core.timing
    columns = max(min(timing.matmul_min_cycles, num_stationary), num_columns)
    factor = timing.fp32_matmul_factor if moving.dtype == "float32" else 1
    return columns * factor


def transpose_cycles(core: Core, tile: NkiTensor) -> float:
    """Transpose by the tensor engine: max(P, min(64, F)) for P partitions of F elements."""
    return max(tile.num_partitions, min(core.timing.matmul_min_cycles, tile.elements_per_partition))


def vector_cycles(
    core: Core,
    inputs: Sequence[NkiTensor],
    output: NkiTensor,
    *,
    is_copy_or_scalar: bool = False,
    rate: float | None = None,
) -> float:
    """At least 64: elements of a partition times the rate of the instruction; on v2, 2 for two float32 tiles in SBUF.

    From v3 on, copies, tensor_scalar and tensor_tensor have faster 16-bit modes, which no instruction with a rate has.
    """
    timing = core.timing
    speedup = _speedup(core, inputs, output, is_copy_or_scalar) if rate is None else 1
    if rate is None:
        wide = sum(tile.dtype == "float32" and tile.buffer is Buffer.sbuf for tile in inputs)
        is_wide = core.generation == 2 and wide == len(inputs) > 1
        rate = timing.vector_cycles_per_element[2 if is_wide else 1]
    elements = max([tile.elements_per_partition for tile in inputs] + [output.elements_per_partition])
    return max(timing.min_interval_cycles, elements * rate / speedup)


def _speedup(core: Core, inputs: Sequence[NkiTensor], output: NkiTensor, is_copy_or_scalar: bool) -> float:
    modes, tiles = core.timing.vector_speedup, [*inputs, output]
    if not modes or any(tile.dtype not in _SHORT_FLOATS for tile in tiles):
        return 1
    in_sbuf = all(tile.buffer is Buffer.sbuf for tile in tiles)
    if is_copy_or_scalar:
        contiguous = all(tile.strides[-1] == 1 for tile in tiles)
        return modes["copy_or_scalar_contiguous" if contiguous and in_sbuf else "copy_or_scalar_strided_or_psum"]
    are_two = len(inputs) == 2 and all(tile.buffer is Buffer.sbuf for tile in inputs)
    return modes["two_tensors_sbuf"] if are_two else 1


def lane_cycles(core: Core, tile: NkiTensor) -> float:
    """ScalarE: at least 64, one element of a partition in a cycle, whatever the function."""
    return max(core.timing.min_interval_cycles, tile.elements_per_partition)


def gpsimd_cycles(core: Core, tile: NkiTensor) -> float:
    """GpSimd: 150 and one element of a partition in a cycle; published for iota and affine_select, else assumed."""
    return core.timing.gpsimd_start_cycles + tile.elements_per_partition


def engine_cycles(core: Core, engine: enum.Enum, tile: NkiTensor) -> float:
    """Return what an instruction on a tile costs that several engines have."""
    if engine.name == "gpsimd":
        return gpsimd_cycles(core, tile)
    return lane_cycles(core, tile) if engine.name == "scalar" else vector_cycles(core, [tile], tile)


def dma_ns(core: Core, tile: NkiTensor) -> float:
    """Start of a transfer, then its bytes at the rate that its contiguous runs reach."""
    size = tile.size * tile.storage.format.size_bytes
    return core.timing.dma_start_ns + size / dma_bytes_per_s(core, contiguous_bytes(tile)) * 1e9


def dma_bytes_per_s(core: Core, run: int) -> float:
    """Return the rate of a core's DMA engines for contiguous runs of a length.

    A run takes its bytes at the peak rate of an engine and a fixed part, which is what the published rate of saturating
    runs leaves; longer runs are no faster.
    """
    timing, spec = core.timing, core.spec
    assert spec.num_dma_engines is not None and spec.dma_engine_bytes_per_s is not None
    saturating, peak = timing.dma_saturating_bytes, timing.dma_peak_bytes_per_s
    fixed_s = saturating / spec.dma_engine_bytes_per_s - saturating / peak
    rate = max(run, 1) / (fixed_s + run / peak)
    return spec.num_dma_engines * min(rate, spec.dma_engine_bytes_per_s)


def contiguous_bytes(tile: NkiTensor) -> int:
    """Return the bytes of the longest run that a transfer moves at once, which is what one descriptor covers."""
    return run_bytes(tile.access())


def run_bytes(access: Access) -> int:
    """Return the bytes of the longest run of elements that lie one after the other; on the chip, in a partition."""
    first = 1 if Buffer(access.buffer).is_on_chip else 0
    run, wanted = 1, 1
    for size, stride in zip(reversed(access.shape[first:]), reversed(access.strides[first:]), strict=True):
        if stride != wanted and size != 1:
            break
        run, wanted = run * size, wanted * size
    return run * FORMATS[access.dtype].size_bytes
