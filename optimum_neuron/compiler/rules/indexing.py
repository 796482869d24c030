"""Reads at computed positions: embeddings, gathers and index_select.

Positions that are counted up at trace time are compared with the table they read: a sequence longer than the table
of positions is refused, as the compiler does. Positions that come in as tensors cannot be checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table
from .call import base_name, op_name

if TYPE_CHECKING:
    from torch.fx import Node

table(
    "gather",
    {
        "aten._embedding_bag": "Gather Reduce",
        "aten.embedding_bag": "Gather Reduce",
        "aten.gather": "Gather",
        "aten.index": "Gather",
        "aten.take_along_dim": "Gather",
    },
)

table("one-hot", {"aten.one_hot": "Iota Compare ConvertElementType"})

_KEEPS_VALUES = frozenset(
    {
        "aten.alias",
        "aten.clone",
        "aten.contiguous",
        "aten.expand",
        "aten.reshape",
        "aten.squeeze",
        "aten.to",
        "aten._to_copy",
        "aten.unsqueeze",
        "aten.view",
    }
)
"""Operators between a range and its use that leave its largest element as it is."""


@rule("embedding", "aten.embedding", "aten.index_select")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a lookup whose counted positions run past the end of the table."""
    if call.name == "aten.embedding":
        rows, positions = call.arguments["weight"].shape[0], call.source("indices")
    else:
        rows, positions = call.arguments["self"].shape[call.arguments["dim"]], call.source("index")
    largest = _largest_counted(positions)
    if largest is not None and largest >= rows:
        return refuse(call, "embedding", "NCC_EVRF056", f"position {largest} is read from a table of {rows} rows")
    return accept(call, "embedding", "Gather")


def _largest_counted(value: Any) -> int | None:
    """Largest element of a range that reaches `value` through views and added numbers, or None."""
    offset = 0
    node: Node = value
    while True:
        if getattr(node, "op", None) != "call_function":
            return None
        name = base_name(op_name(node.target))
        if name == "aten.arange":
            last = _last_of_range(node)
            return None if last is None else last + offset
        if name == "aten.add" and isinstance(node.args[1], int) and "alpha" not in node.kwargs:
            offset += node.args[1]
        elif name not in _KEEPS_VALUES:
            return None
        node = node.args[0]


def _last_of_range(node: Node) -> int | None:
    """Last element of a rising `aten.arange` of integers."""
    if not all(isinstance(number, int) for number in node.args):
        return None
    start, end, step = {1: (0, *node.args, 1), 2: (*node.args, 1), 3: node.args}[len(node.args)]
    return start + (end - 1 - start) // step * step if step > 0 and end > start else None
