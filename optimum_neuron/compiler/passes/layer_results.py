"""Pass: return what some layers of a stack return, beside the results of a graph.

A layer's result is a value of the graph already, so that no code changes, and layers that were captured once for all
stay equal. Before: each named layer is one call with one result. After: the graph has it under the given name too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..ir import Program


def return_layers(program: Program, graph_name: str, layers: Mapping[str, str]) -> Program:
    """Add the results of layers to those of a graph; `layers` has their module paths by the name of the result."""
    graph, outputs = program.graphs[graph_name], {}
    for name, path in layers.items():
        (call,) = (call for call in graph.calls if call.module_path == path)
        (outputs[name],) = call.outputs
    longer = dataclasses.replace(graph, outputs={**graph.outputs, **outputs})
    return dataclasses.replace(program, graphs={**program.graphs, graph_name: longer})
