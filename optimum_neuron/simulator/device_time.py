"""Work to device time: documented rates, and the few constants of a core generation.

    decoders:     time = launch + max(tensor engine, DMA, unpacking) + vector engine + links + separate reads
    other graphs: time = launch + max(tensor engine + vector engine, DMA) + links + separate reads

Data moves at the rate of the DMA engines, which is below that of HBM (272 against 410 GB/s for each NeuronCore-v2).
Weights of one operator are fetched while others compute; in decoders, vector passes wait for products and for DMA, as
published times say. Passes that unpack weights wait for no product, so they overlap with both, as the vector passes of
other graphs do. It does not depend on hosts, batches or prices.
"""

from __future__ import annotations

import dataclasses

from ..hardware import Target
from .fitted import CoreConstants
from .work import Work

SOFTMAX_PASSES = 3
"""Largest score, sum of exponentials, quotient."""
ATTENTION_READ_S = 2.6e-6
"""One separate read of keys and values: the start of two transfers of 1.3 us (NKI, DMA bandwidth guide)."""
NETWORK_LATENCY_S = 15e-6
"""A send between two instances, besides its bytes. A judgment: the order of MPI latencies over EFA."""
SPILL_SHARE = 0.2
"""Share of intermediate results beyond SBUF that goes through HBM: tiles of it are used before they are written. A
judgment: no published time that constants are fitted on depends on it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreRates:
    """Documented rates of one logical core: the sum of its physical ones."""

    tensor_hz: float
    """Cycles of the tensor engine each second."""
    vector_elements_per_s: float
    """Elements that the vector and scalar engines pass each second."""
    dma_bytes_per_s: float
    hbm_bytes_per_s: float
    chip_bytes_per_s: float | None
    """Rate of the memory that the cores of a chip share (Inf1); None where each core has its own."""
    peak_flops_per_s: float
    """Published 16-bit peak."""
    num_physical: int
    """Physical cores of a logical one."""
    target: str
    """Target that they are of, for NKI kernels."""

    def least_s(self, work: Work) -> float:
        """The least time of some work by documented peaks alone: a bound, never an estimate."""
        return max(work.product_flops / self.peak_flops_per_s, work.hbm_bytes / self.hbm_bytes_per_s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """Simulated time of one run on the device."""

    total_s: float
    parts_s: dict[str, float]
    """Time of each engine; tensor and dma overlap, and outside of decoders vector too."""
    compute_s: float
    """Time of the engines that transfers overlap with."""
    transfer_s: float
    """Time of the transfers that overlap with them."""
    unpack_s: float
    """Time of the passes over weights that overlap with both."""
    reads_s: float
    """The part of dma that separate reads take: nothing overlaps with them."""

    @property
    def limited_by(self) -> str:
        """The engine that takes longest."""
        return max(self.parts_s, key=self.parts_s.__getitem__)

    @property
    def alone_s(self) -> float:
        """Time without any overlap, including the launch."""
        return self.total_s - self.overlapping_s

    @property
    def overlapping_s(self) -> float:
        """The longest of what overlaps."""
        return max(self.compute_s, self.transfer_s, self.unpack_s)

    def __add__(self, other: DeviceTime) -> DeviceTime:
        """The time of two runs, one after the other."""
        return DeviceTime(
            total_s=self.total_s + other.total_s,
            parts_s={name: seconds + other.parts_s[name] for name, seconds in self.parts_s.items()},
            compute_s=self.compute_s + other.compute_s,
            transfer_s=self.transfer_s + other.transfer_s,
            unpack_s=self.unpack_s + other.unpack_s,
            reads_s=self.reads_s + other.reads_s,
        )

    def slower(self, factor: float) -> DeviceTime:
        """The same run, every part of it `factor` times as long."""
        return DeviceTime(
            total_s=factor * self.total_s,
            parts_s={name: factor * seconds for name, seconds in self.parts_s.items()},
            compute_s=factor * self.compute_s,
            transfer_s=factor * self.transfer_s,
            unpack_s=factor * self.unpack_s,
            reads_s=factor * self.reads_s,
        )


def core_rates(target: Target, lnc: int | None = None) -> CoreRates:
    """Documented rates of a logical core of a target."""
    core = target.core
    physical = target.chip.default_lnc if lnc is None else lnc
    dma = core.dma_bytes_per_s or target.chip.hbm_bytes_per_s / target.chip.num_cores
    clocks = [engine.clock_ghz for engine in (core.tensor, core.vector, core.scalar)]
    tensor_ghz, vector_ghz, scalar_ghz = (clock if clock is not None else _V1_GHZ for clock in clocks)
    return CoreRates(
        tensor_hz=physical * tensor_ghz * 1e9,
        vector_elements_per_s=physical * 128 * (vector_ghz + scalar_ghz) * 1e9,
        dma_bytes_per_s=physical * dma,
        hbm_bytes_per_s=physical * target.chip.hbm_bytes_per_s / (1 if target.shares_memory else target.chip.num_cores),
        chip_bytes_per_s=target.chip.hbm_bytes_per_s if target.shares_memory else None,
        peak_flops_per_s=physical * target.chip.tflops["bfloat16"] * 1e12 / target.chip.num_cores,
        num_physical=physical,
        target=target.name,
    )


_V1_GHZ = 0.5
"""NeuronCore-v1, whose clock is not published: 16 TFLOPS are 128x128 multiply-adds at this clock, and its vector
engine's 256 operations a cycle are a multiply-add on each of 128 lanes (documents.NC_V1)."""


def memory_bytes_per_s(rates: CoreRates, fitted: CoreConstants, busy_cores: int) -> float:
    """Rate at which a core moves data, while `busy_cores` of its chip do."""
    if rates.chip_bytes_per_s is None:
        return rates.dma_bytes_per_s
    return min(fitted.lone_core_share, 1 / busy_cores) * rates.chip_bytes_per_s


def device_time(
    work: Work,
    rates: CoreRates,
    fitted: CoreConstants,
    *,
    decoder: bool,
    num_chips: int = 1,
    network_bytes_per_s: float | None = None,
    tiled: bool = False,
    flash: bool = True,
    busy_cores: int = 1,
) -> DeviceTime:
    """Time of the work of one core in one run of a graph.

    Args:
        work: of that core.
        rates: of that core.
        fitted: constants of its generation.
        decoder: whether it is a decoder; other graphs have another cost of vector passes, which overlap with DMA.
        num_chips: chips whose cores run it together.
        network_bytes_per_s: rate of the core's part of the network, if the stage before it is on another instance.
        tiled: weights were laid out in tiles ahead of time, so that DMA finds them in one piece.
        flash: attention of prompts is the fused kernel.
        busy_cores: cores of the chip that run at the same time, where they share its memory.
    """
    attention = fitted.flash_factor if flash and decoder else 1.0
    vector = fitted.vector_factor if decoder else fitted.graph_vector_factor
    rows = 0.0 if tiled else fitted.row_overhead_bytes * work.weight_rows
    moved = work.weight_bytes + rows + work.state_bytes + work.result_bytes + SPILL_SHARE * work.spill_bytes
    transfer_s = moved / memory_bytes_per_s(rates, fitted, busy_cores)
    tensor_s = (work.tensor_cycles + attention * work.attention_cycles) * fitted.tensor_factor / rates.tensor_hz
    passes = vector * work.vector_elements + attention * SOFTMAX_PASSES * work.softmax_elements
    vector_s = passes / rates.vector_elements_per_s
    unpack_s = fitted.graph_vector_factor * work.unpacked_elements / rates.vector_elements_per_s
    reads_s = _separate_reads_s(work, fitted) / rates.num_physical
    link_s = all_reduce_s(
        work.collective_bytes, rates, fitted, num_chips=num_chips, num_collectives=work.num_collectives
    )
    if network_bytes_per_s is None:
        # A send moves its bytes once, an all-reduce twice.
        link_s += all_reduce_s(work.sent_bytes / 2, rates, fitted, num_chips=num_chips, num_collectives=work.num_sends)
    else:
        link_s += work.num_sends * NETWORK_LATENCY_S + work.sent_bytes / network_bytes_per_s
    launch_s = fitted.launch_us * 1e-6
    compute_s, after_s = (tensor_s, vector_s) if decoder else (tensor_s + vector_s + unpack_s, 0.0)
    aside_s = unpack_s if decoder else 0.0
    kernels_s, busy_s = _kernels_s(work, rates)
    dma_s = transfer_s + reads_s + busy_s["dma"]
    tensor_s, vector_s = tensor_s + busy_s["tensor"], vector_s + unpack_s + busy_s["vector"]
    return DeviceTime(
        total_s=launch_s + max(compute_s, transfer_s, aside_s) + after_s + reads_s + link_s + kernels_s,
        parts_s={"tensor": tensor_s, "dma": dma_s, "vector": vector_s, "link": link_s, "launch": launch_s},
        compute_s=compute_s,
        transfer_s=transfer_s,
        unpack_s=aside_s,
        reads_s=reads_s,
    )


def _kernels_s(work: Work, rates: CoreRates) -> tuple[float, dict[str, float]]:
    """Time of NKI kernels, which overlap with no other operators, and of their engines; GpSimd's is with vector's."""
    total_s, busy_s = 0.0, {"tensor": 0.0, "vector": 0.0, "dma": 0.0}
    if not work.kernels.counts:
        return total_s, busy_s
    from ..nki import kernel_time  # it imports torch, which most estimates do without

    for key, count in work.kernels.counts:
        time = kernel_time(key, rates.target)
        total_s += 1e-6 * count * time.total_us
        busy_s["tensor"] += 1e-6 * count * time.busy_us.get("tensor", 0.0)
        busy_s["dma"] += 1e-6 * count * time.busy_us.get("dma", 0.0)
        # The engines of elements run beside each other: the busiest counts.
        busy_s["vector"] += 1e-6 * count * max(time.busy_us.get(name, 0.0) for name in ("vector", "scalar", "gpsimd"))
    return total_s, busy_s


def _separate_reads_s(work: Work, fitted: CoreConstants) -> float:
    """Time of separate reads of keys and values; those of one operator beyond a number overlap with the others."""
    return min(work.attention_reads, fitted.waiting_reads * work.num_attentions) * ATTENTION_READ_S


def all_reduce_s(
    num_bytes: float, rates: CoreRates, fitted: CoreConstants, *, num_chips: int, num_collectives: int = 1
) -> float:
    """Time of all-reduces of `num_bytes` on each core, between the cores of `num_chips` chips of one instance."""
    each_us = fitted.all_reduce_us + (num_chips - 1) * fitted.all_reduce_chip_us
    return num_collectives * each_us * 1e-6 + num_bytes / (fitted.all_reduce_share * rates.dma_bytes_per_s)
