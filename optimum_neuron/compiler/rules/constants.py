"""Values known at compile time: constants of the graph, and results computed from them alone.

Rules compare positions that are known with the size that they index, and `judge` refuses integers that the core cannot
hold. `mark_constants` attaches values to the placeholders of an exported program; without it only tensors that the
graph makes itself, such as ranges, are known. Weights of a checkpoint are never known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...base.core import Ruling
from ...upstream import torch as private
from ...upstream.torch import schema_of
from ..serialize import base_of, writes
from .base import OpCall, refuse

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

_VALUE = "neuron_constant"
"""Key of a placeholder's value in `node.meta`."""

_MAX_NODES = 64
"""Longer computations are not followed."""

_MAX_ELEMENTS = 1 << 24
"""Larger tensors are not computed."""

_NUMBERS = ("Tensor", "number", "Optional[Tensor]", "Optional[number]")
"""Types of the arguments that enter a computation; sizes, dimensions and offsets have others."""

_SMALLEST, _LARGEST = -(2**31), 2**31 - 1


def mark_constants(exported: ExportedProgram) -> None:
    """Attach the values of the program's constants to their placeholders."""
    from torch.export.graph_signature import InputKind

    nodes = {node.name: node for node in exported.graph.find_nodes(op="placeholder")}
    for spec in exported.graph_signature.input_specs:
        is_buffer = spec.kind == InputKind.BUFFER and not spec.persistent
        if is_buffer or spec.kind == InputKind.CONSTANT_TENSOR:
            nodes[spec.arg.name].meta[_VALUE] = exported.constants[spec.target]


def outside(positions: object, size: int, *, from_the_end: bool) -> int | None:
    """Return a known position that is not one of a dimension, or None.

    Args:
        from_the_end: whether negative positions count from its end.
    """
    value = constant_value(positions)
    if value is None or value.numel() == 0:
        return None
    low, high = _bounds(value)
    if high >= size:
        return high
    return low if low < (-size if from_the_end else 0) else None


def outside_of_any(shape: Sequence[int], indices: Sequence[Any]) -> tuple[int, int] | None:
    """Return a known position of `x[indices]` that x does not have, with the size of its dimension, or None."""
    dim = 0
    for index in indices:
        value = None if index is None else index.meta["val"]
        if value is not None and value.dtype.itemsize == 1:  # a mask takes as many dimensions as it has
            dim += value.dim()
            continue
        position = outside(index, shape[dim], from_the_end=True)
        if position is not None:
            return position, shape[dim]
        dim += 1
    return None


def constant_value(value: object) -> torch.Tensor | None:
    """Compute what a node returns, on the CPU, if it depends on constants alone."""
    import torch
    from torch.fx.node import map_arg

    order = _computation(value) if isinstance(value, torch.fx.Node) else None
    if order is None or _written(order):
        return None
    values: dict[Node, Any] = {}
    # A backend of torch.compile checks graphs while fake tensors are on.
    with torch.no_grad(), private.disable_current_modes():
        for node in order:
            if _VALUE in node.meta:
                values[node] = node.meta[_VALUE]
                continue
            arguments = private.tree_map_only(torch.device, lambda _: torch.device("cpu"), (node.args, node.kwargs))
            args, kwargs = map_arg(arguments, values.__getitem__)
            try:
                values[node] = node.target(*args, **kwargs)
            except (IndexError, RuntimeError):
                return None  # that call is judged on its own
    return values[value]


def _bounds(value: torch.Tensor) -> tuple[int, int]:
    with private.disable_current_modes():
        return int(value.min()), int(value.max())


def judge(call: OpCall) -> Ruling | None:
    """Refuse an integer beyond 32 bits among the numbers and constants that a 64-bit computation takes."""
    wide = next((number for number in _integers(call) if not _SMALLEST <= number <= _LARGEST), None)
    if wide is None:
        return None
    reason = f"the constant {wide} does not fit the 32 bits that the core has"
    return refuse(call, "NCC_ESFH002", reason, rule="constant")


def _integers(call: OpCall) -> list[int]:
    schema = schema_of(call.node)
    if schema is None or not call.outputs:
        return []
    numbers: list[int] = []
    for node in call.node.all_input_nodes:
        value = node.meta.get(_VALUE)
        if value is not None and str(value.dtype) == "torch.int64" and value.numel():
            numbers += _bounds(value)
    computed = call.outputs[0].dtype if call.outputs[0].dtype != "bool" or not call.inputs else call.inputs[0].dtype
    if computed == "int64":
        # Export passes a number as it is where the operator takes a tensor.
        names = [argument.name for argument in schema.arguments if str(argument.type) in _NUMBERS]
        numbers += [number for number in map(call.arguments.get, names) if type(number) is int]
    return numbers


def _computation(result: Node) -> list[Node] | None:
    """The nodes that compute a result, in order; None where one is not constant or there are too many."""
    nodes = [result]
    for node in nodes:  # the list grows on the way
        if len(nodes) > _MAX_NODES or not _is_constant(node):
            return None
        nodes += [part for part in node.all_input_nodes if part not in nodes]
    return sorted(nodes)


def _is_constant(node: Node) -> bool:
    import torch

    value, target = node.meta.get("val"), node.target
    computes = isinstance(target, private.OpOverload) and torch.Tag.nondeterministic_seeded not in target.tags
    return (
        isinstance(value, torch.Tensor)
        and all(type(size) is int for size in value.shape)
        and value.numel() <= _MAX_ELEMENTS
        and (_VALUE in node.meta or computes)
    )


def _written(nodes: list[Node]) -> bool:
    """Return whether the graph writes in place where one of the nodes has its elements."""
    memory = {base_of(node) for node in nodes}
    return any(_writes(node) and base_of(node) in memory for node in nodes[-1].graph.nodes)


def _writes(node: Node) -> bool:
    """Return whether a call changes elements in place; detaching changes none, whatever its schema says."""
    return writes(node) and str(node.target) != "aten.detach_.default"
