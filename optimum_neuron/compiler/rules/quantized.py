"""Matrix products with quantized weights: which stored dtypes a target has."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule

_E4M3 = ("float8_e4m3", "float8_e4m3fn")
"""Names of 8-bit floats with 4 bits of exponent: up to 240 their bits are the same, and schemes end there."""


@rule("quantized-matmul", "neuron.quantized_linear neuron.dynamic_quantized_linear", judges_dtypes=True)
def judge(call: OpCall, target: Target) -> Ruling:
    """Accept weights in an integer dtype or an fp8 that the core has; they are converted while they are loaded."""
    values = call.inputs[1].dtype
    dtypes = target.core.dtypes
    if values in _E4M3 and not set(_E4M3) & set(dtypes):
        return refuse(call, "NCC_ESPP047", f"{target.core.name} has no float8 e4m3")
    if values not in (*dtypes, *_E4M3):
        return refuse(call, "NCC_ESPP004", f"{target.core.name} has no {values}")
    unpacking = "ShiftRightLogical LogicalAnd " if values == "uint8" else ""
    if call.name == "neuron.dynamic_quantized_linear":
        return accept(call, "Abs Reduce Div ConvertElementType DotGeneral Mul")
    return accept(call, f"{unpacking}ConvertElementType DotGeneral Mul")
