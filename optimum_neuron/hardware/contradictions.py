"""Where public documents disagree: the value used, the other ones, and why.

`scope` tells what is concerned: "hardware" values are in this package's data, "software" ones are readings of the real
SDK's documents that other packages follow or do not need.

    >>> from optimum_neuron.hardware.contradictions import CONTRADICTIONS
    >>> next(c.chosen for c in CONTRADICTIONS if c.topic == "HBM rate of Trainium2")
    '2.9 TB/s'
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from . import documents as doc


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contradiction:
    """One disagreement between documents, resolved."""

    topic: str
    """What it is about."""
    chosen: str
    """The value used."""
    alternative: str
    """The other values."""
    reason: str
    """Why."""
    sources: tuple[str, ...]
    """The documents, that of the chosen value first."""
    scope: Literal["hardware", "software"] = "hardware"
    """Whether it is a number of this catalogue or a behaviour of the SDK."""


CONTRADICTIONS: tuple[Contradiction, ...] = (
    Contradiction(
        topic="HBM rate of Trainium2",
        chosen="2.9 TB/s",
        alternative="3 TB/s",
        reason="the instance table's 46.4 TB/s over 16 chips gives it; 3 is a rounding",
        sources=(doc.TRAINIUM2, doc.NKI_V3),
    ),
    Contradiction(
        topic="HBM rate of Trainium3",
        chosen="4.9 TB/s",
        alternative="4.7 TB/s",
        reason="both UltraServer tables give it (313.6 TB/s over 64 chips, 705.6 over 144)",
        sources=(doc.TRAINIUM3, doc.NKI_V4),
    ),
    Contradiction(
        topic="CC-cores of Trainium2 and Trainium3",
        chosen="16",
        alternative="20",
        reason="the current chip pages; an older Trainium2 page said 20 too. No rate depends on it",
        sources=(doc.TRAINIUM2, doc.TRAINIUM3, doc.NKI_V3, doc.NKI_V4),
    ),
    Contradiction(
        topic="Peak rate: chip against cores",
        chosen="both kept: the core's for time, the chip's for utilisation",
        alternative="16-bit TFLOPS: Trainium 190 against 2 x 92 = 184; Trainium2 667 against 8 x 79 = 632; Trainium3 "
        "671 against 632. float32: Trainium2 181 against 8 x 20 = 160",
        reason="clock x array gives the core's number; published utilisation divides by the chip's (95 per core on "
        "Trainium)",
        sources=(doc.NKI_V2, doc.NKI_V3, doc.TRAINIUM1, doc.TRAINIUM2, doc.TRAINIUM3),
    ),
    Contradiction(
        topic="16-bit peak of Trainium",
        chosen="190 TFLOPS",
        alternative="191 TFLOPS (and 48 for float32)",
        reason="the chip's own page and the instance table; the comparison table of the Trainium2 page rounds up",
        sources=(doc.TRAINIUM1, doc.TRN1, doc.TRAINIUM2),
    ),
    Contradiction(
        topic="Rate of one DMA engine",
        chosen="17, 23 and 33 GB/s for NeuronCore-v2, v3 and v4",
        alternative="27 GiB/s (v2), 27.2 GB/s (v2 and v3), 38.4 GB/s (v4); so is the DMA rate of the chips (3.5 TB/s = "
        "128 x 27 on Trainium2)",
        reason="17 agrees with the memory utilisation of published profiles; 27 is the theoretical peak, which "
        "`ChipSpec.dma_bytes_per_s` keeps",
        sources=(doc.NKI_DMA, doc.NKI_V2, "Neuron docs, NKI, introduction to DMA"),
    ),
    Contradiction(
        topic="Unit of the HBM rate of Inferentia2 and Trainium",
        chosen="820 GB/s",
        alternative="820 GiB/s",
        reason="the NKI guide's unit; the smaller one; the DMA engines cannot reach either",
        sources=(doc.NKI_V2, doc.INFERENTIA2, doc.TRAINIUM1),
    ),
    Contradiction(
        topic="Unit of the NeuronLink-v2 rate",
        chosen="GB/s (192 on Inf2, 384 on Trn1, 768 on Trn1n)",
        alternative="GiB/s",
        reason="the Trainium2 page compares 384 GB/s with 1280 GB/s, and later generations count in powers of ten",
        sources=(doc.TRAINIUM2, doc.INF2, doc.TRN1),
    ),
    Contradiction(
        topic="NeuronLink rate of one Trainium2",
        chosen="1.28 TB/s for the chip; 1024 GB/s inside a server",
        alternative="1024 GB/s, or 256 GB/s",
        reason="the instance table splits the sum: 1024 inside, 256 between servers",
        sources=(doc.TRAINIUM2, doc.TRN2),
    ),
    Contradiction(
        topic="NeuronLink rate of one Trainium3",
        chosen="2.56 TB/s for the chip; 2048 GiB/s in an UltraServer",
        alternative="either for both",
        reason="each page's value is kept for what the page describes",
        sources=(doc.TRAINIUM3, doc.TRN3),
    ),
    Contradiction(
        topic="Topology of Trn1",
        chosen="4x4 2D torus",
        alternative="4D hypercube",
        reason="the same sixteen chips and links under two names; the current page says torus",
        sources=(doc.TRN1, doc.INTRANODE),
    ),
    Contradiction(
        topic="Core counts of a multi-core job on trn1.32xlarge",
        chosen="1, 2, 8, 16, 32",
        alternative="1, 2, 8, 32",
        reason="the runtime's own message lists 16, and the scheduler places 8 chips",
        sources=(doc.RUNTIME_TOPOLOGY, doc.SCHEDULER, doc.TORCH_VARIABLES),
    ),
    Contradiction(
        topic="Auto-cast to fp8_e4m3",
        chosen="trn2 and later",
        alternative="also trn1: a release note of March 2023 introduced it when only trn1 and inf2 existed",
        reason="the current CLI page; fp8 matmuls gain no speed before NeuronCore-v3",
        sources=(doc.COMPILER_CLI, "Neuron docs, neuronx-cc 2.5 release notes"),
    ),
    Contradiction(
        topic="Complex numbers",
        chosen="no core has them",
        scope="software",
        alternative="release notes of SDK 2.32 count 30 complex64 operators",
        reason="the error page NCC_EVRF004 refuses complex types; the operators can only be decompositions",
        sources=("Neuron docs, neuronx-cc error code NCC_EVRF004", "Neuron docs, SDK 2.32 release notes"),
    ),
    Contradiction(
        topic="Default of NEURON_RT_EXEC_TIMEOUT",
        chosen="30 s",
        alternative="2 s",
        scope="software",
        reason="the table of variables says 30, the prose of the same guide says 2",
        sources=(doc.RUNTIME_CONFIG,),
    ),
    Contradiction(
        topic="Graph partitioning in torch-neuronx",
        chosen="exists",
        alternative="'No' in the framework comparison",
        reason="PartitionerConfig is documented",
        scope="software",
        sources=("Neuron docs, torch-neuronx graph partitioner", "Neuron docs, framework comparison"),
    ),
    Contradiction(
        topic="Auto-cast default of neuronx-cc",
        chosen="none",
        scope="software",
        alternative="float32 matmuls become bfloat16 (mixed-precision guide; benchmark tables say matmult-bf16)",
        reason="the reference page of the option",
        sources=(doc.COMPILER_CLI, "Neuron docs, mixed precision and performance-accuracy tuning"),
    ),
    Contradiction(
        topic="Casts of the Inf1 compiler",
        chosen="every float32 operation becomes bfloat16",
        scope="software",
        alternative="none, as in neuronx-cc",
        reason="neuron-cc defaults to --fast-math all: numbers from Inf1 are no float32 reference",
        sources=(doc.INF1_COMPILER_CLI, doc.COMPILER_CLI),
    ),
    Contradiction(
        topic="Key of numerical errors in neuron-monitor",
        chosen="numerical",
        alternative="numeric",
        scope="software",
        reason="the JSON example is what a parser meets",
        sources=("Neuron docs, Neuron Monitor user guide",),
    ),
)
"""Every known disagreement."""
