"""Pass: cut a captured graph into subprograms, so that equal layers become one body called many times.

The cut follows the modules: consecutive nodes of one layer of a stack form a segment, so do the nodes
between stacks. Equal segments get the same name because a subprogram is named by its content. Nothing is
decomposed before this point: subgraphs stay small, and only distinct ones are lowered. `return_layers` gives a
graph the results of some layers too, which are values of it already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ...base.core import TensorSpec
from ...errors import CaptureError
from ..capture import Captured
from ..ir import Call, Graph, Program, Subprogram
from ..rules import module_path, region_of, source_line
from ..serialize import base_of, make_subprogram, tensor_spec, writes
from .bodies import extract


@dataclasses.dataclass
class _Segment:
    path: str
    nodes: list[fx.Node] = dataclasses.field(default_factory=list)


def outline(captured: Captured) -> Program:
    """Return a program with one graph, whose calls follow the captured module structure.

    A stack that was shortened at capture is still short here; `stretch` restores its length.
    """
    graph_module = captured.exported.graph_module
    _inline_regions(graph_module)
    _drop_unread(graph_module)
    values, weights, states, constants = _classify_placeholders(captured)
    segments = _segments(graph_module, captured)
    subprograms: dict[str, Subprogram] = {}
    calls: list[Call] = []
    for index, segment in enumerate(segments):
        inside = set(segment.nodes)
        results = [node for node in segment.nodes if not inside.issuperset(node.users)]
        _refuse_written_views(results, segments[index + 1 :])
        body, arguments = extract(segment.nodes, results, located)
        subprogram = make_subprogram(body)
        subprograms.setdefault(subprogram.name, subprogram)
        inputs = tuple(values[node] for node in arguments)
        num_values = sum(len(call.outputs) for call in calls)
        values |= {node: f"tmp:{num_values + slot}" for slot, node in enumerate(results)}
        outputs = tuple(values[node] for node in results)
        calls.append(Call(subprogram=subprogram.name, inputs=inputs, outputs=outputs, module_path=segment.path))
    returned = _output_node(graph_module).args[0]
    assert len(returned) == len(captured.outputs), f"{len(returned)} results, {len(captured.outputs)} names"
    graph = Graph(
        name=captured.name,
        inputs={
            value.removeprefix("input:"): tensor_spec(node.meta["val"])
            for node, value in values.items()
            if value.startswith("input:")
        },
        outputs={name: values[node] for name, node in zip(captured.outputs, returned, strict=True)},
        calls=tuple(calls),
        rare=captured.rare,
        role=captured.role,
        sizes=dict(captured.sizes),
    )
    return Program(
        graphs={graph.name: graph}, subprograms=subprograms, weights=weights, states=states, constants=constants
    )


def _output_node(graph_module: fx.GraphModule) -> fx.Node:
    return next(node for node in graph_module.graph.nodes if node.op == "output")


def _inline_regions(graph_module: fx.GraphModule) -> None:
    """Replace no_grad and autocast regions, which export wraps in submodules, by their nodes."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if (parts := region_of(node)) is None:
            continue
        _, region, arguments = parts
        submodule = graph_module.get_submodule(region.target)
        _inline_regions(submodule)
        operands = iter(arguments)
        mapping: dict[fx.Node, Any] = {}
        with graph.inserting_before(node):
            for inner in submodule.graph.nodes:
                if inner.op == "placeholder":
                    mapping[inner] = next(operands)
                elif inner.op != "output":
                    mapping[inner] = graph.node_copy(inner, mapping.__getitem__)
        results = [mapping[value] for value in _output_node(submodule).args[0]]
        for user in list(node.users):
            user.replace_all_uses_with(results[user.args[1]])
            graph.erase_node(user)
        graph.erase_node(node)
        graph.erase_node(region)
    graph.lint()


def _drop_unread(graph_module: fx.GraphModule) -> None:
    """Drop what nothing reads, such as the checks that export leaves behind and that static shapes make void."""
    graph_module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or writes(node))


def _classify_placeholders(captured: Captured):  # type: ignore[no-untyped-def]
    """Name every placeholder, and collect the tensors that a checkpoint, the device, and the artifact must hold."""
    exported = captured.exported
    nodes = {node.name: node for node in exported.graph_module.graph.nodes}
    user = iter([f"input:{name}" for name in captured.inputs] + [f"state:{name}" for name in captured.states])
    values: dict[fx.Node, str] = {}
    weights: dict[str, TensorSpec] = {}
    states: dict[str, TensorSpec] = {}
    constants: dict[str, torch.Tensor] = {}
    for spec in exported.graph_signature.input_specs:
        node, target = nodes[spec.arg.name], spec.target
        if spec.kind == InputKind.USER_INPUT:
            value = next(user)
            if value.startswith("state:"):
                states[value.removeprefix("state:")] = tensor_spec(node.meta["val"])
        elif spec.kind == InputKind.PARAMETER or (spec.kind == InputKind.BUFFER and spec.persistent):
            target = captured.tied.get(target, target)
            value = f"weight:{target}"
            weights[target] = tensor_spec(node.meta["val"])
        else:
            value = f"const:{target}"
            constants[target] = exported.constants[target].detach().clone()
        values[node] = value
    used = {value for node, value in values.items() if node.users}
    weights = {name: spec for name, spec in weights.items() if f"weight:{name}" in used}
    constants = {name: tensor for name, tensor in constants.items() if f"const:{name}" in used}
    return values, weights, states, constants


def _segments(graph_module: fx.GraphModule, captured: Captured) -> list[_Segment]:
    """Group consecutive nodes by the layer that they belong to."""
    prefixes = [stack.path for stack in captured.stacks]
    segments: list[_Segment] = []
    for node in graph_module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        path = _layer_path(node, prefixes, captured.cuts)
        if not segments or segments[-1].path != path:
            segments.append(_Segment(path))
        segments[-1].nodes.append(node)
    return segments


def _layer_path(node: fx.Node, prefixes: list[str], cuts: tuple[str, ...]) -> str:
    """The path of the stacked layer or cut module that a node is in, or an empty string."""
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        if path in cuts:
            return path
        for prefix in prefixes:
            head, _, rest = path.partition(prefix + ".")
            if head == "" and rest.split(".")[0].isdigit():
                return f"{prefix}.{rest.split('.')[0]}"
    return ""


def located(node: fx.Node) -> dict[str, Any]:
    """Return the metadata that a body keeps of a captured node."""
    where = {"module_path": module_path(node) or "", "source_line": source_line(node) or ""}
    return {"val": node.meta["val"], **where}


def _refuse_written_views(results: list[fx.Node], later: list[_Segment]) -> None:
    """A view is copied at the end of its segment, so it would miss later writes of other segments to its memory."""
    views = [node for node in results if base_of(node) is not node and not node.meta["val"].is_contiguous()]
    nodes = [node for segment in later for node in segment.nodes]
    lost = [view for view in views if any(writes(node) and base_of(node) is base_of(view) for node in nodes)]
    if lost:
        places = ", ".join(source_line(node) or node.name for node in lost)
        message = f"A layer returns a strided view of memory that a later layer writes in place: {places}."
        hint = "Write in place where the tensor is made, or return `.clone()`."
        raise CaptureError(message, hint=hint, source_lines=[source_line(node) for node in lost])


def return_layers(program: Program, graph_name: str, layers: Mapping[str, str]) -> Program:
    """Add the results of layers to those of a graph; `layers` has their module paths by the name of the result."""
    graph, outputs = program.graphs[graph_name], {}
    for name, path in layers.items():
        (call,) = (call for call in graph.calls if call.module_path == path)
        (outputs[name],) = call.outputs
    longer = dataclasses.replace(graph, outputs={**graph.outputs, **outputs})
    return dataclasses.replace(program, graphs={**program.graphs, graph_name: longer})
