"""Powers and right shifts, which depend on the width of an integer: int64 powers and shifts that are not 32 bits
wide are refused."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule

_SHIFTABLE = ("int32", "uint32", "float32")


@rule("power", "pow")
def judge_power(call: OpCall, target: Target) -> Ruling:
    """Refuse a power that is computed in int64."""
    if call.outputs[0].dtype == "int64":
        return refuse(call, "power", "NCC_EVRF062", "it is computed in int64, which would be cut to int32")
    return accept(call, "power", "Pow")


@rule("right-shift", "bitwise_right_shift __rshift__ __irshift__")
def judge_shift(call: OpCall, target: Target) -> Ruling:
    """Refuse a right shift whose first operand is not 32 bits wide."""
    dtype = call.inputs[0].dtype
    if dtype not in _SHIFTABLE:
        return refuse(call, "right-shift", "NCC_EVRF022", f"the shifted tensor is {dtype}, not 32 bits wide")
    return accept(call, "right-shift", "ShiftRightArithmetic")
