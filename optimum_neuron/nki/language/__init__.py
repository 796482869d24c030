"""`nki.language`: dtypes, memories, tensors, operators, loops; what kernels are written in, beside `nki.isa`.

>>> from optimum_neuron.nki import language as nl
>>> nl.add, nl.sbuf, nl.bfloat16
(nl.add, nl.sbuf, 'bfloat16')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import FORMATS
from ..memory import Buffer
from ..operators import OPERATORS
from ..tensor import NkiTensor
from . import control, creation, data, objects
from .control import no_reorder as no_reorder
from .creation import fill as fill
from .elementwise import COMPARISONS as COMPARISONS, apply as apply, promoted as promoted

_NAMES = {
    "DType": str,
    "MemoryRegion": Buffer,
    "NkiTensor": NkiTensor,
    "_TileSize": control.TileSize,
    **{("bool_" if name == "bool" else name): row.name for name, row in FORMATS.items()},
    **{place.name: place for place in Buffer},
    **OPERATORS,
    **{name: getattr(module, name) for module in (control, creation, data, objects) for name in module.__all__},
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
