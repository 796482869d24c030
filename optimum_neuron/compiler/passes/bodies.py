"""Apply a rewrite to every distinct body of a program and rename what changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from torch.fx import GraphModule

from ..ir import Program
from ..serial import make_subprogram


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
    if not renamed:
        return program
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
