"""`nki.language`: dtypes, memories, tensors, operators, loops; what kernels are written in, beside `nki.isa`.

>>> from optimum_neuron.nki import language as nl
>>> nl.add, nl.sbuf, nl.bfloat16
(nl.add, nl.sbuf, 'bfloat16')
"""

from __future__ import annotations

from ..core import absent
from ..dtypes import FORMATS
from ..memory import Buffer
from ..operators import OPERATORS
from ..tensor import NkiTensor
from . import control, creation, data
from .elementwise import apply as apply, signature_of as signature_of

ABSENT = (
    *("rand", "random_seed", "gather_flattened", "all", "rms_norm", "dropout", "dynamic_range", "fori_loop"),
    *("while_loop", "no_reorder"),
)
"""Functions of the vendor's module that are not implemented yet; a call says so."""

_NAMES = {
    "NkiTensor": NkiTensor,
    **{("bool_" if name == "bool" else name): name for name in FORMATS},
    **{place.name: place for place in Buffer},
    **OPERATORS,
    **{name: getattr(module, name) for module in (control, creation, data) for name in module.__all__},
    **{name: absent(f"nki.language.{name}") for name in ABSENT},
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
