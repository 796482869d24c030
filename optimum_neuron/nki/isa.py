"""`nki.isa`: the instructions of a NeuronCore, and the enumerations that they take.

>>> from optimum_neuron.nki import isa as nisa
>>> nisa.engine.vector.value, nisa.reduce_cmd.reset_reduce.value
(5, 3)
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from ..errors import KernelError as NkiValidationError
from .core import target_core
from .instructions import ENUMS, FUNCTIONS, NkiInstruction, VirtualRegister, name_of

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


class nc_version(enum.IntEnum):
    """Generations of the core, older ones first."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


def get_nc_version() -> nc_version:
    """Return the generation of the core that the kernel runs on, or of the default target."""
    return nc_version(target_core().generation)


def get_nc_sub_version() -> int:
    """Return the step of the generation: 1 for NeuronCore-v4, which has `exponential`, and 0 for the others."""
    return int(target_core().generation >= 4)


_NAMES = {
    **FUNCTIONS,
    **{name_of(one): one for one in ENUMS.values()},
    **{f"{name}_engine": ENUMS["Engine"][name] for name in ("gpsimd", "scalar", "tensor", "unknown", "vector")},
    **{one.__name__: one for one in (NkiInstruction, VirtualRegister, get_nc_sub_version, get_nc_version, nc_version)},
    "NkiValidationError": NkiValidationError,
}
globals().update(_NAMES)
__all__ = sorted(_NAMES)
