"""What a core does not need to compute: results of weights that are zeros there, and results that nothing reads.

Heads of zeros fill up where the number of cores does not divide the heads of a model. A core that has no other heads
in a layer adds zeros to the sum of all cores, as long as its inputs are finite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch
from torch import fx

from ..ir import Call, Program, Subprogram
from ..serialize import shares_memory, writes, written_tensors

_ATEN = torch.ops.aten
_LINEAR = _ATEN.linear.default
_PRODUCTS = (_ATEN.mul.Tensor, _ATEN.mm.default, _ATEN.bmm.default, _ATEN.matmul.default)
"""Zero if either operand is."""
_SAME_VALUES = (_ATEN.to.dtype, _ATEN._to_copy.default, _ATEN.clone.default, _ATEN.contiguous.default)


def zero_results(subprogram: Subprogram, zeros: Collection[int]) -> frozenset[int]:
    """Return the positions of results that are zeros if the arguments at the positions `zeros` are."""
    *nodes, output = subprogram.body.graph.nodes
    inputs = [node for node in nodes if node.op == "placeholder"]
    zero = {inputs[position] for position in zeros}
    written = written_tensors(subprogram.body)
    for node in nodes[len(inputs) :]:
        if node not in written and not writes(node) and _is_zero(node, zero):
            zero.add(node)
    return frozenset(position for position, node in enumerate(output.args[0]) if node in zero)


def _is_zero(node: fx.Node, zero: Collection[fx.Node]) -> bool:
    if node.target is _LINEAR:
        operands, bias = node.args[:2], (*node.args[2:], *node.kwargs.values())
        return any(one in zero for one in operands) and all(one is None or one in zero for one in bias)
    if node.target in _PRODUCTS:
        return any(operand in zero for operand in node.args)
    return (shares_memory(node) or node.target in _SAME_VALUES) and node.args[0] in zero


def drop_unread(program: Program) -> Program:
    """Return the program without calls of which nothing reads a result or a state, and without such states."""
    read: set[str] = set()
    while True:
        num_read = len(read)
        graphs = {}
        for name, graph in program.graphs.items():
            needed, calls = {*graph.outputs.values()}, list[Call]()
            for call in reversed(graph.calls):
                mutated = program.subprograms[call.subprogram].mutated
                changed = {*call.outputs, *(call.inputs[position] for position in mutated)}
                if changed & needed or changed & read:
                    calls.append(call)
                    needed.update(call.inputs)
            read.update(value for value in needed if value.startswith("state:"))
            graphs[name] = dataclasses.replace(graph, calls=tuple(reversed(calls)))
        if len(read) == num_read:
            states = {name: spec for name, spec in program.states.items() if f"state:{name}" in read}
            return dataclasses.replace(program, graphs=graphs, states=states)
