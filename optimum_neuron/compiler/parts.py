"""A capture divided into entry points that compute the same up to some of its results.

Prompts of a decoder are two graphs, with logits of the last token or of all. They differ behind the last layer only, so
both are captured in one run of the model, and each keeps what its own results need.

    prefill = part_of(both, name="prefill_16", role="prefill", outputs={"logits": "prefill.logits"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import torch
from torch import fx
from torch.export import ExportedProgram

from ..upstream.torch import use_lazy_graph_module
from .capture import Captured, drop_unused
from .ir import Role

_CASTS = (torch.ops.aten.to.dtype, torch.ops.aten.to.dtype_layout)


def part_of(
    captured: Captured, *, name: str, role: Role, outputs: Mapping[str, str], without: Collection[str] = ()
) -> Captured:
    """Return an entry point with some results of a capture, which stays as it is.

    Args:
        captured: the capture of all results.
        name: label of the entry point.
        role: its role.
        outputs: its results, and their names in the capture.
        without: inputs of the capture that it does not take.
    """
    exported, places = captured.exported, [captured.outputs.index(result) for result in outputs.values()]
    signature, graph = exported.graph_signature, fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    results = graph.graph_copy(exported.graph, copies)
    assert isinstance(results, tuple) and len(results) == len(captured.outputs), "an export returns its results only"
    graph.output(tuple(results[place] for place in places))
    drop_unused(graph)
    _drop_casts_of_others(graph, copies)
    user = [spec.arg.name for spec in signature.input_specs if spec.arg.name in signature.user_inputs]
    left_out = {node for node, label in zip(user, captured.inputs, strict=False) if label in without}
    for node in graph.find_nodes(op="placeholder"):
        if node.name in left_out:
            graph.erase_node(node)
    with use_lazy_graph_module(True):
        program = ExportedProgram(
            root=exported.graph_module,
            graph=graph,
            graph_signature=dataclasses.replace(
                signature,
                input_specs=[spec for spec in signature.input_specs if spec.arg.name not in left_out],
                output_specs=[signature.output_specs[place] for place in places],
            ),
            state_dict=exported.state_dict,
            range_constraints=exported.range_constraints,
            module_call_graph=exported.module_call_graph,
            constants=exported.constants,
            verifiers=exported.verifiers,
        )
    return dataclasses.replace(
        captured,
        name=name,
        role=role,
        exported=program,
        inputs=tuple(label for label in captured.inputs if label not in without),
        outputs=tuple(outputs),
    )


def _drop_casts_of_others(graph: fx.Graph, copies: Mapping[fx.Node, fx.Node]) -> None:
    """Remove casts of inputs that change nothing and were made for a result that is left out.

    A tensor that is cast to its own dtype is the same one, and what reads it later in a capture reads the cast.
    """
    kept = set(graph.nodes)
    for node, copy in copies.items():
        source = node.args[0] if node.target in _CASTS and copy in kept else None
        if not isinstance(source, fx.Node) or source.op != "placeholder":
            continue
        if node.meta["val"].dtype == source.meta["val"].dtype and copies.get(next(iter(node.users))) not in kept:
            copy.replace_all_uses_with(copies[source])
            graph.erase_node(copy)
