"""Pass: cut bodies where cores exchange tensors and where NKI kernels run, so that each of these is a separate call.

Before: a layer is one call, whose body has exchanges and kernels between its nodes. After: it is a call for what lies
before the first of them, that one, and so on. `neuron.rank` becomes an argument, so that a body is the same on every
core. A program without exchanges and kernels is returned unchanged.
"""

from __future__ import annotations

import dataclasses
import functools
import operator

from torch import fx

from ..collectives import EXCHANGES, RANK
from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram
from ..kernels import is_kernel
from .pieces import Piece, calls_of, pieces_of


def cut_at_exchanges(program: Program) -> Program:
    """Return the program with every exchange and every kernel as a separate call."""
    pieces = {
        name: _pieces(subprogram)
        for name, subprogram in program.subprograms.items()
        if any(node.target in (*EXCHANGES, RANK) or is_kernel(node) for node in subprogram.body.graph.nodes)
    }
    if not pieces:
        return program
    subprograms = {name: one for name, one in program.subprograms.items() if name not in pieces}
    subprograms |= {piece.subprogram.name: piece.subprogram for parts in pieces.values() for piece in parts}
    graphs = {name: _cut(graph, program, pieces) for name, graph in program.graphs.items()}
    return dataclasses.replace(program, graphs=graphs, subprograms=subprograms)


def _cut(graph: Graph, program: Program, pieces: dict[str, list[Piece]]) -> Graph:
    calls: list[Call] = []
    for number, call in enumerate(graph.calls):
        if call.subprogram not in pieces:
            calls.append(call)
            continue
        name = functools.partial(_value, number)
        calls += calls_of(call, program.subprograms[call.subprogram].body, pieces[call.subprogram], name)
    return dataclasses.replace(graph, calls=tuple(calls))


def _value(number: int, node: fx.Node) -> str:
    return RANK_VALUE if node.target is RANK else f"tmp:{number}.{node.name}"


def _pieces(subprogram: Subprogram) -> list[Piece]:
    """Divide the nodes of a body, in their order."""
    groups: list[list[fx.Node]] = [[]]
    for node in subprogram.body.graph.nodes:
        if node.op != "call_function" or node.target is RANK:
            continue
        if node.target is operator.getitem and is_kernel(node.args[0]):
            continue
        if is_kernel(node):
            groups += [[node, *node.users], []]
        elif node.target in EXCHANGES:
            groups += [[node], []]
        else:
            groups[-1].append(node)
    return pieces_of(subprogram.body, groups)
