"""Matrix products with quantized weights: which stored dtypes a target has."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, rule

_E4M3 = ("float8_e4m3", "float8_e4m3fn")
"""Names of 8-bit floats with 4 bits of exponent: up to 240 their bits are the same, and schemes end there."""


@rule(
    "quantized-matmul",
    "neuron.quantized_linear neuron.dynamic_quantized_linear neuron.quantized_experts neuron.quantized_experts_sum",
    judges_dtypes=True,
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Accept weights in an integer dtype or an fp8 that the core has; they are converted while they are loaded."""
    return _judge(call, target, call.inputs[1].dtype, "DotGeneral Mul")


@rule("quantized-rows", "neuron.pick_experts", judges_dtypes=True)
def judge_rows(call: OpCall, target: Target) -> Ruling:
    """Accept the same dtypes: numbers of a weight are moved before they are multiplied."""
    return _judge(call, target, call.inputs[0].dtype, "Gather")


def _judge(call: OpCall, target: Target, values: str, operations: str) -> Ruling:
    dtypes = target.core.dtypes
    if values in _E4M3 and not set(_E4M3) & set(dtypes):
        return refuse(call, "NCC_ESPP047", f"{target.core.name} has no float8 e4m3")
    if values not in (*dtypes, *_E4M3):
        return refuse(call, "NCC_ESPP004", f"{target.core.name} has no {values}")
    if operations == "Gather":
        return accept(call, operations)
    unpacking = "ShiftRightLogical LogicalAnd " if values == "uint8" else ""
    if call.name == "neuron.dynamic_quantized_linear":
        return accept(call, f"Abs Reduce Div ConvertElementType {operations}")
    return accept(call, f"{unpacking}ConvertElementType {operations}")
