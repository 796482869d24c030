"""Apply a rewrite to every distinct body of a program and rename what changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..ir import Program
from ..serial import make_subprogram

if TYPE_CHECKING:
    from torch.fx import GraphModule


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
    """Join programs of one model into one; equal bodies, weights and constants are kept once."""
    first = programs[0]
    merged = dataclasses.replace(first, graphs={}, subprograms={}, weights={}, states={}, constants={})
    for program in programs:
        assert not program.states or not merged.states or program.states == merged.states, "one set of states"
        merged.graphs.update(program.graphs)
        for name, subprogram in program.subprograms.items():
            merged.subprograms.setdefault(name, subprogram)
        merged.weights.update(program.weights)
        merged.states.update(program.states)
        merged.constants.update(program.constants)
    return merged
