"""Writes at computed positions: caches, index_put and the scatter family.

A plain write takes any dtype. A write that combines with what is there computes in float32, so integers are refused.
"""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table

table(
    "write",
    {
        "aten.as_strided_scatter": "Iota Scatter",
        "aten.copy": "DynamicUpdateSlice",
        "aten.diagonal_scatter": "Iota Scatter",
        "aten.embedding_dense_backward": "Scatter",
        "aten.fill": "Constant",
        "aten.index_copy": "Scatter",
        "aten.index_fill": "Scatter",
        "aten.masked_scatter": "ReduceWindow Gather Select",
        "aten.select_scatter": "DynamicUpdateSlice",
        "aten.slice_scatter": "DynamicUpdateSlice",
        "aten.zero": "Constant",
    },
)

_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")


@rule(
    "scatter",
    "aten._index_put_impl",
    "aten._unsafe_index_put",
    "aten.index_add",
    "aten.index_put",
    "aten.scatter",
    "aten.scatter_add",
)
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a combining write of wide integers."""
    dtype = call.inputs[0].dtype
    if combines(call) and dtype in _WIDE_INTEGERS:
        return refuse(call, "scatter", "NCC_EVRF060", f"it combines {dtype} elements, which the core does in float32")
    return accept(call, "scatter", "Scatter")


@rule("scatter-reduce", "aten.index_reduce", "aten.scatter_reduce")
def judge_reduce(call: OpCall, target: Target) -> Ruling:
    """Refuse a scatter reduction of integers and booleans."""
    dtype = call.inputs[0].dtype
    if dtype == "bool" or "int" in dtype:
        return refuse(call, "scatter-reduce", "NCC_EVRF016", f"it reduces {dtype} elements")
    return accept(call, "scatter-reduce", "Scatter")


def combines(call: OpCall) -> bool:
    """Whether a write computes with what is there, in place of replacing it."""
    if call.name in ("aten.index_add", "aten.scatter_add"):
        return True
    return bool(call.arguments.get("accumulate")) or call.arguments.get("reduce") is not None
