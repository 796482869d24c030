"""Where the cost of an instruction is from: the formula of its cycles, and the document, or that none publishes it.

>>> from optimum_neuron.nki import COSTS
>>> COSTS["tensor_tensor_scan"].formula
'max(64, 2 N)'
"""

from __future__ import annotations

import dataclasses

from ..hardware import documents as doc

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
