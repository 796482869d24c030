"""Pass: cut bodies where cores exchange tensors and where NKI kernels run, so that each of these is a separate call.

Before: a layer is one call, whose body has exchanges and kernels between its nodes. After: it is a call for what lies
before the first of them, that one, and so on. `neuron.rank` becomes an argument, so that a body is the same on every
core. A program without exchanges and kernels is returned unchanged.

The host computes an exchange from the tensors of all cores (`host_exchange`).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

import torch
from torch import fx

from ...base.core import TensorSpec
from ..collectives import ALL_GATHER, ALL_REDUCE, EXCHANGES, RANK, SEND, exchange_of
from ..ir import RANK_VALUE, Call, Graph, Program, Subprogram, forget_source_at_end, lazy_module
from ..kernels import is_kernel
from ..serialize import make_subprogram
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
