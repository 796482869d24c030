"""Cut a body into several calls, and join several calls into one.

The values of the graph stay the same. Callers decide where to cut and which calls to join: `exchanges.py` cuts where
cores exchange tensors, and `unroll.py` where cores begin to differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from torch import fx

from ..ir import Call, Subprogram, lazy_module
from ..serialize import make_subprogram, writes
from .bodies import extract


@dataclasses.dataclass(frozen=True)
class Piece:
    """Part of a body, as a body."""

    subprogram: Subprogram
    arguments: tuple[fx.Node, ...]
    """Nodes of the whole body that the part reads."""
    results: tuple[fx.Node, ...]
    """Nodes of the whole body that others read."""


def pieces_of(body: fx.GraphModule, groups: Iterable[Sequence[fx.Node]]) -> list[Piece]:
    """Return a piece for each group of nodes, except groups that write nothing and whose results no other node reads.

    A node may be in several groups; other groups read it from the first one.
    """
    groups = list(groups)
    *_, output = body.graph.nodes
    read = {*output.args[0]}
    for group in groups:
        inside = set(group)
        read.update(argument for node in group for argument in node.all_input_nodes if argument not in inside)
    pieces, computed = [], set[fx.Node]()
    for group in groups:
        results = tuple(node for node in group if node in read and node not in computed)
        computed.update(group)
        if results or any(map(writes, group)):
            extracted, arguments = extract(group, results)
            pieces.append(Piece(make_subprogram(extracted), tuple(arguments), results))
    return pieces


def calls_of(call: Call, body: fx.GraphModule, pieces: Sequence[Piece], name: Callable[[fx.Node], str]) -> list[Call]:
    """Return calls of the pieces of a body in place of a call of the body; `name` names values between them."""
    *nodes, output = body.graph.nodes
    values = dict(zip((node for node in nodes if node.op == "placeholder"), call.inputs, strict=True))
    values |= dict(zip(output.args[0], call.outputs, strict=True))

    def value(node: fx.Node) -> str:
        return values[node] if node in values else name(node)

    return [
        dataclasses.replace(
            call,
            subprogram=piece.subprogram.name,
            inputs=tuple(map(value, piece.arguments)),
            outputs=tuple(map(value, piece.results)),
        )
        for piece in pieces
    ]


def join(calls: Sequence[Call], subprogram: str, read: Collection[str]) -> Call:
    """Return one call of a joined body; `read` has the values that other calls need, at least one.

    Its place in the model is that of its first result.
    """
    made = {value for call in calls for value in call.outputs}
    inputs = dict.fromkeys(value for call in calls for value in call.inputs if value not in made)
    results = [(value, call) for call in calls for value in call.outputs if value in read]
    outputs = tuple(value for value, _ in results)
    return dataclasses.replace(results[0][1], subprogram=subprogram, inputs=tuple(inputs), outputs=outputs)


def wiring(calls: Sequence[Call], read: Collection[str]) -> tuple[object, ...]:
    """Return a key that calls share if `joined_body` makes the same body of them."""
    number: dict[str, int] = {}
    return tuple(
        (
            call.subprogram,
            tuple(number.setdefault(value, len(number)) for value in call.inputs),
            tuple((number.setdefault(value, len(number)), value in read) for value in call.outputs),
        )
        for call in calls
    )


def joined_body(calls: Sequence[Call], subprograms: Mapping[str, Subprogram], read: Collection[str]) -> Subprogram:
    """Return one body for consecutive calls, with the signature of `join`."""
    graph, nodes = fx.Graph(), dict[str, fx.Node]()
    whole = join(calls, "", read)
    for value in whole.inputs:
        nodes[value] = graph.placeholder(f"arg{len(nodes)}")
    for call in calls:
        *body, output = subprograms[call.subprogram].body.graph.nodes
        inputs = [node for node in body if node.op == "placeholder"]
        copies = {node: nodes[value] for node, value in zip(inputs, call.inputs, strict=True)}
        for node in inputs:
            copies[node].meta.setdefault("val", node.meta["val"])
        for node in body[len(inputs) :]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        nodes |= {value: copies[node] for value, node in zip(call.outputs, output.args[0], strict=True)}
    graph.output(tuple(nodes[value] for value in whole.outputs))
    graph.lint()
    return make_subprogram(lazy_module(graph))
