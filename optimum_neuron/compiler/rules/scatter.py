"""Writes at computed positions: caches, index_put and the scatter family.

A plain write takes any dtype. A write that combines with what is there computes in float32, so integers are refused.
Positions that are known while compiling are compared with the size of what is written.
"""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table
from .constants import outside, outside_of_any
from .indexing import size_of

table(
    "write",
    {
        "Iota Scatter": "as_strided_scatter diagonal_scatter",
        "DynamicUpdateSlice": "copy select_scatter slice_scatter",
        "Scatter": "embedding_dense_backward",
        "Constant": "fill zero",
        "ReduceWindow Gather Select": "masked_scatter",
    },
)

_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")


@rule("scatter", "_index_put_impl _unsafe_index_put index_add index_copy index_fill index_put scatter scatter_add")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a combining write of wide integers, and positions that what is written lacks."""
    dtype = call.inputs[0].dtype
    if combines(call) and dtype in _WIDE_INTEGERS:
        return refuse(call, "scatter", "NCC_EVRF060", f"it combines {dtype} elements, which the core does in float32")
    return _past_the_end(call, "scatter") or accept(call, "scatter", "Scatter")


@rule("scatter-reduce", "index_reduce scatter_reduce")
def judge_reduce(call: OpCall, target: Target) -> Ruling:
    """Refuse a scatter reduction of integers and booleans, and positions that what is written lacks."""
    dtype = call.inputs[0].dtype
    if dtype == "bool" or "int" in dtype:
        return refuse(call, "scatter-reduce", "NCC_EVRF016", f"it reduces {dtype} elements")
    return _past_the_end(call, "scatter-reduce") or accept(call, "scatter-reduce", "Scatter")


def _past_the_end(call: OpCall, rule_name: str) -> Ruling | None:
    if "indices" in call.arguments:
        missing = outside_of_any(call.inputs[0].shape, call.source("indices"))
    else:
        size = size_of(call)
        position = outside(call.source("index"), size, from_the_end=call.name == "aten.index_fill")
        missing = None if position is None else (position, size)
    if missing is None:
        return None
    return refuse(
        call, rule_name, "NCC_EVRF031", f"position {missing[0]} is written in a dimension of size {missing[1]}"
    )


def combines(call: OpCall) -> bool:
    """Whether a write computes with what is there, in place of replacing it."""
    if call.name in ("aten.index_add", "aten.scatter_add"):
        return True
    return bool(call.arguments.get("accumulate")) or call.arguments.get("reduce") is not None
