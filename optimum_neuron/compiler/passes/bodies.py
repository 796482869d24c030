"""Bodies of a program: taken out of a graph, rewritten, and shared between graphs.

`verify` is the specification of a program, as code: run between passes, it names the pass and the call that broke it.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx import GraphModule

from ...base.core import DTYPE_SIZE_BYTES
from ..ir import Graph, Program, lazy_module
from ..serialize import make_subprogram


def rewrite_bodies(program: Program, rewrite: Callable[[GraphModule], GraphModule]) -> Program:
    """Return the program with `rewrite` applied to each body; calls follow the new names."""
    renamed, subprograms = {}, {}
    for name, subprogram in program.subprograms.items():
        new = make_subprogram(rewrite(subprogram.body))
        renamed[name] = new.name
        subprograms[new.name] = new
    graphs = {
        name: dataclasses.replace(
            graph, calls=tuple(dataclasses.replace(call, subprogram=renamed[call.subprogram]) for call in graph.calls)
        )
        for name, graph in program.graphs.items()
    }
    return dataclasses.replace(program, graphs=graphs, subprograms=subprograms)


def merge(programs: list[Program]) -> Program:
    """Join programs of one model; equal subgraphs, weights, and constants are stored once.

    Constants that differ under one name, such as those that tracing numbers in each graph, are renamed.
    """
    first = programs[0]
    merged = dataclasses.replace(first, graphs={}, subprograms={}, weights={}, states={}, constants={})
    for program in programs:
        program = _apart(program, merged.constants)
        assert not program.states or not merged.states or program.states == merged.states, "one set of states"
        merged.graphs.update(program.graphs)
        for name, subprogram in program.subprograms.items():
            merged.subprograms.setdefault(name, subprogram)
        merged.weights.update(program.weights)
        merged.states.update(program.states)
        merged.constants.update(program.constants)
    return merged


def _apart(program: Program, taken: Mapping[str, torch.Tensor]) -> Program:
    """Rename constants whose name stands for another tensor already; the program has one graph."""
    (graph,) = program.graphs.values()
    renamed = {
        name: f"{name}@{graph.name}"
        for name, tensor in program.constants.items()
        if name in taken and not (tensor.dtype == taken[name].dtype and torch.equal(tensor, taken[name]))
    }
    values = {f"const:{name}": f"const:{new}" for name, new in renamed.items()}
    calls = tuple(
        dataclasses.replace(call, inputs=tuple(values.get(value, value) for value in call.inputs))
        for call in graph.calls
    )
    outputs = {name: values.get(value, value) for name, value in graph.outputs.items()}
    return dataclasses.replace(
        program,
        graphs={graph.name: dataclasses.replace(graph, calls=calls, outputs=outputs)},
        constants={renamed.get(name, name): tensor for name, tensor in program.constants.items()},
    )


def extract(
    nodes: Sequence[fx.Node], results: Sequence[fx.Node], meta: Callable[[fx.Node], dict[str, Any]] | None = None
) -> tuple[fx.GraphModule, list[fx.Node]]:
    """Copy nodes into a separate graph; return it with its arguments, in order of first use.

    Args:
        meta: Metadata that a copy of a node keeps; None for all of its `meta`.
    """
    inside = set(nodes)
    arguments = list(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in inside))
    graph, copies = fx.Graph(), {}
    for index, node in enumerate(arguments):
        copies[node] = graph.placeholder(f"arg{index}")
        copies[node].meta["val"] = node.meta["val"]
    for node in nodes:
        copy = copies[node] = graph.node_copy(node, lambda n: copies[n])
        copy.meta = dict(node.meta) if meta is None else meta(node)
    graph.output(tuple(_contiguous(graph, copies[node]) for node in results))
    graph.lint()
    return lazy_module(graph), arguments


def _contiguous(graph: fx.Graph, result: fx.Node) -> fx.Node:
    """A body takes contiguous arguments, so it returns contiguous results; most are already."""
    value = result.meta["val"]
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return result
    laid_out = graph.call_function(torch.ops.aten.contiguous.default, (result,))
    laid_out.meta = {**result.meta, "val": value.contiguous()}
    return laid_out


def verify(program: Program, *, after: str) -> Program:
    """Return the program unchanged if it is well formed.

    Every value is produced before it is used; arguments have the shapes and dtypes that the body was captured
    with; bodies call ATen operators or exchanges on static shapes; weights, states and constants are declared.
    """
    for subprogram in program.subprograms.values():
        where = f"after {after}: {subprogram.name}"
        for node in subprogram.body.graph.nodes:
            if node.op == "call_function":
                known = node.target is operator.getitem or str(node.target).startswith(("aten.", "neuron."))
                assert known, f"{where} calls {node.target}"
        for spec in (*subprogram.inputs, *subprogram.outputs):
            assert spec.dtype in DTYPE_SIZE_BYTES, f"{where} has dtype {spec.dtype}"
    for graph in program.graphs.values():
        _verify_graph(program, graph, after)
    return program


def _verify_graph(program: Program, graph: Graph, after: str) -> None:
    declared = {
        **{"input": graph.inputs, "weight": program.weights, "state": program.states, "const": program.constants},
        "rank": ("",),
    }
    produced: dict[str, object] = {}
    for position, call in enumerate(graph.calls):
        where = f"after {after}: graph {graph.name}, call {position} ({call.module_path or 'glue'})"
        subprogram = program.subprograms.get(call.subprogram)
        assert subprogram is not None, f"{where}: no subprogram {call.subprogram}"
        assert len(call.inputs) == len(subprogram.inputs), f"{where}: {len(call.inputs)} arguments"
        assert len(call.outputs) == len(subprogram.outputs), f"{where}: {len(call.outputs)} results"
        for value, expected in zip(call.inputs, subprogram.inputs, strict=True):
            kind, _, name = value.partition(":")
            assert value in produced or name in declared.get(kind, ()), f"{where}: {value} is not defined"
            actual = produced[value] if value in produced else program.value_spec(graph, value)
            assert actual == expected, f"{where}: {value} is {actual}, the body takes {expected}"
        for value, spec in zip(call.outputs, subprogram.outputs, strict=True):
            assert value.startswith("tmp:") and value not in produced, f"{where}: {value} is assigned twice"
            produced[value] = spec
    for name, value in graph.outputs.items():
        kind, _, rest = value.partition(":")
        assert value in produced or rest in declared.get(kind, ()), f"after {after}: result {name} is not defined"
