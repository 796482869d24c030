"""Which tensors of a graph share memory: views, results in place, and what operators write.

written_tensors(body)       # placeholders and results that operators write
base_of(node)               # the tensor whose memory a view has
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ..upstream.torch import schema_of

if TYPE_CHECKING:
    from torch import fx

_MAY_COPY = ("aten::to", "aten::contiguous", "aten::reshape", "aten::flatten")
"""Operators whose schema promises a view, but which copy where dtype or layout has to change."""


def mutated_arguments(body: fx.GraphModule) -> tuple[int, ...]:
    """Positions of the placeholders that the body writes in place, directly or through a view."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    written = written_tensors(body)
    return tuple(i for i, node in enumerate(inputs) if node in written)


def written_tensors(body: fx.GraphModule) -> set[fx.Node]:
    """Placeholders and results that the body writes in place, directly or through a view."""
    return {
        base_of(argument)
        for node in filter(writes, body.graph.nodes)
        for argument, spec in zip(node.args, node.target._schema.arguments, strict=False)
        if spec.alias_info is not None and spec.alias_info.is_write
    }


def writes(node: fx.Node) -> bool:
    """Return whether a node calls an operator that writes to an argument."""
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


def base_of(node: fx.Node) -> fx.Node:
    """Follow views and in-place results back to the tensor whose memory they are."""
    while node.target is operator.getitem or shares_memory(node):
        node = node.args[0]
    return node


def shares_memory(node: fx.Node) -> bool:
    """Return whether the result of a node lies in the memory of its first argument: a view, or written in place."""
    if node.target is operator.getitem:
        return shares_memory(node.args[0])
    schema = schema_of(node)
    if schema is None or not schema.returns or schema.returns[0].alias_info is None:
        return False
    if schema.name not in _MAY_COPY:
        return True
    value, source = node.meta["val"], node.args[0].meta["val"]
    return value.dtype == source.dtype and (schema.name == "aten::to" or source.is_contiguous())
