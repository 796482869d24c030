"""Dtypes that a core has no arithmetic for, whatever the operator.

64-bit integers pass: they index and count, and the compiler narrows them; matmuls and powers of them have rules of
their own.
"""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, refuse

_NARROWED = ("int64", "uint64")
_REMEDIES = {
    "float64": "convert the model and its inputs to float32 with .float(), and pass dtype=torch.float32 where a "
    "tensor is made",
}


def judge(call: OpCall, target: Target) -> Ruling | None:
    """Refuse a call that meets a dtype the target lacks; None lets it pass."""
    for dtype in dict.fromkeys(spec.dtype for spec in call.tensors):
        if dtype not in target.core.dtypes and dtype not in _NARROWED:
            return refuse(
                call,
                "dtype",
                _code(dtype),
                f"{target.core.name} has no arithmetic for {dtype}",
                remedy=_REMEDIES.get(dtype),
            )
    return None


def _code(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "NCC_EVRF004"
    if dtype.endswith("fnuz"):
        return "NCC_EVRF005"
    if dtype == "float8_e4m3fn":
        return "NCC_EVRF051"
    return "NCC_ESPP047" if dtype.startswith("float8") else "NCC_ESPP004"
