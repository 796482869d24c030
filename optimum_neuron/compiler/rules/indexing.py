"""Reads and writes at computed positions: embeddings, gathers, caches, index_put and the scatter family.

Positions that are known while compiling are compared with the size that they index, as the compiler does: a sequence
longer than its table of positions is refused. Positions that come in as tensors cannot be checked. A plain write takes
any dtype; one that combines with existing values computes in float32, so integers are refused.
"""

from __future__ import annotations

import math

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table
from .constants import outside, outside_of_any

table("gather", {"Gather Reduce": "_embedding_bag embedding_bag"})
table("one-hot", {"Iota Compare ConvertElementType": "one_hot"})
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

_FROM_THE_END = ("aten.index_fill", "aten.take_along_dim")
"""Operators of one dimension for which negative positions count from its end."""
_REDUCTIONS = "index_reduce scatter_reduce"
_WIDE_INTEGERS = ("int32", "int64", "uint32", "uint64")


@rule("embedding", "embedding index_select")
@rule("index", "index")
@rule("gather-along", "gather take_along_dim")
def judge_read(call: OpCall, target: Target) -> Ruling:
    """Refuse a read at a position that is not there."""
    if missing := _missing(call):
        return refuse(call, "NCC_EVRF056", f"position {missing[0]} is read from a dimension of size {missing[1]}")
    return accept(call, "Gather")


@rule("scatter", "_index_put_impl _unsafe_index_put index_add index_copy index_fill index_put scatter scatter_add")
@rule("scatter-reduce", _REDUCTIONS)
def judge_write(call: OpCall, target: Target) -> Ruling:
    """Refuse a combining write of integers, and a write at a position that is not there."""
    dtype = call.inputs[0].dtype
    if call.name.removeprefix("aten.") in _REDUCTIONS.split() and (dtype == "bool" or "int" in dtype):
        return refuse(call, "NCC_EVRF016", f"it reduces {dtype} elements")
    if combines(call) and dtype in _WIDE_INTEGERS:
        return refuse(call, "NCC_EVRF060", f"it combines {dtype} elements, which the core does in float32")
    if missing := _missing(call):
        return refuse(call, "NCC_EVRF031", f"position {missing[0]} is written in a dimension of size {missing[1]}")
    return accept(call, "Scatter")


def combines(call: OpCall) -> bool:
    """Return whether a write computes with what is there, in place of replacing it."""
    if call.name in ("aten.index_add", "aten.scatter_add"):
        return True
    return bool(call.arguments.get("accumulate")) or call.arguments.get("reduce") is not None


def _missing(call: OpCall) -> tuple[int, int] | None:
    """Return a known position that is not there, with the size of its dimension, or None."""
    positions = call.source("indices" if "indices" in call.arguments else "index")
    shape, dim = call.inputs[0].shape, call.arguments.get("dim")
    if isinstance(positions, (list, tuple)):
        return outside_of_any(shape, positions)
    if call.name == "aten.embedding":
        dim = 0
    # Without a dimension, positions index the flattened tensor.
    size = math.prod(shape) if dim is None or not shape else shape[dim]
    position = outside(positions, size, from_the_end=call.name in _FROM_THE_END)
    return None if position is None else (position, size)
