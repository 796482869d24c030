"""Pass: cut bodies where cores exchange tensors, so that every exchange is a separate call.

Before: a layer is one call, whose body has exchanges between its nodes. After: it is a call for what lies before the
first exchange, the exchange, and so on. `neuron.rank` becomes an argument, so that a body is the same on every core. A
program without exchanges is returned unchanged.
"""

from __future__ import annotations

import dataclasses

from torch import fx

from ..collectives import EXCHANGES, RANK
from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram
from ..serial import make_subprogram, writes
from .bodies import extract


@dataclasses.dataclass(frozen=True)
class _Piece:
    """A part of a body that lies between two exchanges, or one exchange."""

    subprogram: Subprogram
    arguments: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]


def cut_at_exchanges(program: Program) -> Program:
    """Return the program with every exchange as a separate call."""
    pieces = {
        name: _pieces(subprogram)
        for name, subprogram in program.subprograms.items()
        if any(node.target in (*EXCHANGES, RANK) for node in subprogram.body.graph.nodes)
    }
    if not pieces:
        return program
    subprograms = {name: one for name, one in program.subprograms.items() if name not in pieces}
    subprograms |= {piece.subprogram.name: piece.subprogram for parts in pieces.values() for piece in parts}
    graphs = {name: _cut(graph, program, pieces) for name, graph in program.graphs.items()}
    return dataclasses.replace(program, graphs=graphs, subprograms=subprograms)


def _cut(graph: Graph, program: Program, pieces: dict[str, list[_Piece]]) -> Graph:
    calls: list[Call] = []
    for number, call in enumerate(graph.calls):
        if call.subprogram not in pieces:
            calls.append(call)
            continue
        body = program.subprograms[call.subprogram].body.graph
        *nodes, output = body.nodes
        values: dict[fx.Node, str] = dict(
            zip((node for node in nodes if node.op == "placeholder"), call.inputs, strict=True)
        )
        values |= dict(zip(output.args[0], call.outputs, strict=True))
        for piece in pieces[call.subprogram]:
            for node in piece.results:
                values.setdefault(node, f"tmp:{number}.{node.name}")
            inputs = tuple(RANK_VALUE if node.target is RANK else values[node] for node in piece.arguments)
            outputs = tuple(values[node] for node in piece.results)
            part = dataclasses.replace(call, subprogram=piece.subprogram.name, inputs=inputs, outputs=outputs)
            calls.append(part)
    return dataclasses.replace(graph, calls=tuple(calls))


def _pieces(subprogram: Subprogram) -> list[_Piece]:
    """Divide the nodes of a body, in their order."""
    *nodes, _ = subprogram.body.graph.nodes
    groups: list[list[fx.Node]] = [[]]
    for node in nodes:
        if node.op == "placeholder" or node.target is RANK:
            continue
        if node.target in EXCHANGES:
            groups += [[node], []]
        else:
            groups[-1].append(node)
    pieces = []
    for group in groups:
        inside = set(group)
        results = tuple(node for node in group if not inside.issuperset(node.users))
        if results or any(map(writes, group)):
            body, arguments = extract(group, results)
            pieces.append(_Piece(make_subprogram(body), tuple(arguments), results))
    return pieces
