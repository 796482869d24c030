"""Cut a body into several calls, and join several calls into one.

The values of the graph stay the same. Callers decide where to cut and which calls to join: `stages.py` cuts where
cores exchange tensors, and `unroll.py` where cores begin to differ. `host_exchange` and `send_of` write the bodies that
stand for what cores exchange.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import fx

from ...base.core import TensorSpec
from ..collectives import ALL_GATHER, ALL_REDUCE, SEND, exchange_of
from ..ir import Call, Subprogram, forget_source_at_end, lazy_module
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


def send_of(spec: TensorSpec) -> Subprogram:
    """Return the body that sends a tensor of such a shape."""
    return _body(lambda x: (SEND(x),), [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")])


def host_exchange(subprogram: Subprogram, num_parts: int) -> Subprogram:
    """Return the body that computes an exchange from the tensors of all cores, in the order of their ranks.

    Every core gets its result; the results of `reduce_scatter` are one for each core. Sums of 16-bit numbers are
    rounded once, at the end.

    Args:
        num_parts: Number of tensors; a sum may leave out those of zeros.
    """
    node = exchange_of(subprogram)
    assert node is not None, f"{subprogram.name} is no exchange"
    (spec,) = subprogram.inputs
    parts = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")] * num_parts
    if node.target is ALL_GATHER:
        return _body(lambda *x: (torch.ops.aten.cat.default(list(x), node.args[1]),), parts)
    if node.target is ALL_REDUCE:
        return _body(lambda *x: (_sum(x),), parts)
    return _body(lambda *x: _scattered(_sum(x), node.args[1], len(x)), parts)


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype = parts[0].dtype
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total.to(dtype)


def _scattered(total: torch.Tensor, dim: int, num_parts: int) -> tuple[torch.Tensor, ...]:
    return tuple(part.contiguous() for part in total.chunk(num_parts, dim))


def _body(function: Callable[..., tuple[torch.Tensor, ...]], parts: Sequence[torch.Tensor]) -> Subprogram:
    """Trace a function of so many tensors into a body."""
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda *x: function(*x), tracing_mode="fake")(*(torch.empty_like(p, device="cpu") for p in parts))
    forget_source_at_end(traced)
    return make_subprogram(lazy_module(traced.graph))
