"""The instructions, by family: each is its operands, its rules, what it computes, and what it costs.

Functions of `nki.isa` are names of this package too: `instructions.tensor_copy(dst, src)` runs one.

>>> from optimum_neuron.nki.instructions import ENUMS
>>> ENUMS["Engine"].vector.value
5
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from .base import (
    FUNCTIONS as FUNCTIONS,
    INSTRUCTIONS as INSTRUCTIONS,
    SBUF as SBUF,
    Engine as Engine,
    Instruction as Instruction,
    checked as checked,
    enumerations,
    execute as execute,
    function_of as function_of,
    name_of as name_of,
    recorded as recorded,
)
from .handles import NkiInstruction as NkiInstruction
from .matmul import MatmulPerfMode as MatmulPerfMode
from .registers import VirtualRegister as VirtualRegister
from .rules import (
    is_among as is_among,
    legal_starts as legal_starts,
    starts_where_engines_reach as starts_where_engines_reach,
)
from .transfer import AXES as AXES

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
ENUMS = {one.__name__: one for kind in INSTRUCTIONS.values() for one in enumerations(kind)}
"""Enumerations of operands by class name."""
COSTS = {name: kind.COST for name, kind in INSTRUCTIONS.items()}
globals().update(FUNCTIONS | ENUMS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
