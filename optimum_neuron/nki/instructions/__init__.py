"""The instructions, by family: each is its operands, its rules, what it computes, and what it costs.

Functions of `nki.isa` are names of this package too: `instructions.tensor_copy(dst, src)` runs one.

>>> from optimum_neuron.nki.instructions import Engine
>>> Engine.vector.value
5
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from .activations import ReduceCmd as ReduceCmd
from .base import (
    FUNCTIONS as FUNCTIONS,
    INSTRUCTIONS as INSTRUCTIONS,
    SBUF as SBUF,
    Engine as Engine,
    Instruction as Instruction,
    checked as checked,
    execute as execute,
    recorded as recorded,
    starts_where_engines_reach as starts_where_engines_reach,
)
from .collective import (
    HBM as HBM,
    Collective as Collective,
    Parts as Parts,
    all_reduced as all_reduced,
    check_priority as check_priority,
    exchanged as exchanged,
    gathered as gathered,
    passed_on as passed_on,
    reduced as reduced,
    scattered as scattered,
)
from .cores import DmaEngine as DmaEngine
from .handles import NkiInstruction as NkiInstruction
from .matmul import MatmulPerfMode as MatmulPerfMode
from .registers import VirtualRegister as VirtualRegister
from .transfer import AXES as AXES, DgeMode as DgeMode, OobMode as OobMode

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
globals().update(FUNCTIONS)
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


ENUMS = {one.__name__: one for one in (DgeMode, DmaEngine, Engine, MatmulPerfMode, OobMode, ReduceCmd)}
"""Enumerations of operands by class name."""
COSTS = {name: kind.COST for name, kind in INSTRUCTIONS.items()}
