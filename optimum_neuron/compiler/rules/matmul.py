"""Matrix products: the engine multiplies floating point, so wide integers are refused or rounded.

int64 is refused on every core, int32 from NeuronCore-v3 (trn2) on; earlier cores accept int32 with a warning.
Narrower integers are exact in float32 up to a sum of 2^24.
"""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule

_FIRST_CORE_WITHOUT_INT32 = 3
"""NeuronCore generation from which int32 products are refused (Neuron docs, neuronx-cc error code NCC_EVRF035)."""


@rule("matmul", "_int_mm _weight_int8pack_mm addbmm addmm addmv baddbmm bmm dot linear matmul mm mv")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a product of int64, and of int32 where the core cannot."""
    dtypes = {spec.dtype for spec in call.inputs}
    if "int64" in dtypes:
        return refuse(call, "matmul", "NCC_EVRF035", "an operand is int64, and the engine multiplies in float32")
    if "int32" not in dtypes:
        return accept(call, "matmul", "DotGeneral")
    if target.core.generation >= _FIRST_CORE_WITHOUT_INT32:
        return refuse(
            call, "matmul", "NCC_EVRF035", f"an operand is int32, which {target.core.name} multiplies in float32"
        )
    return accept(
        call,
        "matmul",
        "DotGeneral",
        code="NCC_EVRF035",
        warning="int32 is multiplied in float32, so results beyond 2^24 are rounded",
    )
