"""Reads at computed positions: embeddings, gathers and index_select.

Positions that are known while compiling are compared with what they index: a sequence longer than the table of
positions is refused, as the compiler does. Positions that come in as tensors cannot be checked here.
"""

from __future__ import annotations

import math

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table
from .constants import outside, outside_of_any

table("gather", {"Gather Reduce": "_embedding_bag embedding_bag"})

table("one-hot", {"Iota Compare ConvertElementType": "one_hot"})

_CODE = "NCC_EVRF056"


@rule("embedding", "embedding index_select")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a lookup of positions that the table lacks."""
    if call.name == "aten.embedding":
        rows, positions = call.arguments["weight"].shape[0], call.source("indices")
    else:
        rows, positions = size_of(call), call.source("index")
    position = outside(positions, rows)
    if position is not None:
        return refuse(call, "embedding", _CODE, f"position {position} is read from a table of {rows} rows")
    return accept(call, "embedding", "Gather")


@rule("index", "index")
def judge_index(call: OpCall, target: Target) -> Ruling:
    """Refuse `x[indices]` with positions that x lacks."""
    missing = outside_of_any(call.inputs[0].shape, call.source("indices"))
    if missing is not None:
        return refuse(call, "index", _CODE, f"position {missing[0]} is read from a dimension of size {missing[1]}")
    return accept(call, "index", "Gather")


@rule("gather-along", "gather take_along_dim")
def judge_gather(call: OpCall, target: Target) -> Ruling:
    """Refuse a gather of positions that the dimension lacks."""
    name = "index" if call.name == "aten.gather" else "indices"
    size = size_of(call)
    position = outside(call.source(name), size, from_the_end=call.name == "aten.take_along_dim")
    if position is not None:
        return refuse(call, "gather-along", _CODE, f"position {position} is read from a dimension of size {size}")
    return accept(call, "gather-along", "Gather")


def size_of(call: OpCall) -> int:
    """Size of the dimension `dim` of `self`; of all of it for a number and where no dimension is named."""
    shape, dim = call.inputs[0].shape, call.arguments.get("dim")
    return math.prod(shape) if dim is None or not shape else shape[dim]
