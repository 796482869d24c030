"""The specification of a program, as code: run between passes, it names the pass and the call that broke it."""

from __future__ import annotations

import operator

from ...base.core import DTYPE_SIZE_BYTES
from ..ir import Graph, Program


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
