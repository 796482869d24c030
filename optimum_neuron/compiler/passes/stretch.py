"""Pass: give a stack that was captured short its full number of layers.

Two captured layers with one body say how a layer takes part in the graph: which arguments are shared, which
follow the layer's index (weights, state), which carry the previous layer's results. If anything does not fit
that picture the pass declines with a reason, and the model is captured whole.
"""

from __future__ import annotations

import dataclasses

from ...core import TensorSpec
from ..ir import Call, Graph, Program
from ..stacks import Stack


class NotUniformError(Exception):
    """The captured layers do not repeat; the message says where. Never reaches a user."""


def stretch(program: Program, graph_name: str, stack: Stack) -> Program:
    """Repeat the second captured layer of `stack` until the graph has all its layers.

    Raises:
        NotUniformError: the two captured layers are not one body in one chain.
    """
    graph = program.graphs[graph_name]
    positions = [i for i, call in enumerate(graph.calls) if _index_in(call.module_path, stack.path) is not None]
    if len(positions) != 2 or positions[1] != positions[0] + 1:
        raise NotUniformError(f"{stack.path}: the layers are not two consecutive calls")
    first, second = graph.calls[positions[0]], graph.calls[positions[1]]
    if first.subprogram != second.subprogram:
        raise NotUniformError(f"{stack.path}: layers 0 and 1 have different graphs")
    head, tail = graph.calls[: positions[0]], graph.calls[positions[1] + 1 :]
    _require_chain(graph, first, second, tail, stack)
    middle = [first]
    for index in range(1, stack.num_layers):
        middle.append(_layer_call(first, second, middle[-1], index, stack))
    final = dict(zip(second.outputs, middle[-1].outputs, strict=True))
    renamed = tuple(dataclasses.replace(c, inputs=tuple(final.get(v, v) for v in c.inputs)) for c in tail)
    outputs = {name: final.get(value, value) for name, value in graph.outputs.items()}
    longer = dataclasses.replace(graph, calls=(*head, *middle, *renamed), outputs=outputs)
    weights, states = _all_layers(program, longer, second, stack)
    return dataclasses.replace(program, graphs={**program.graphs, graph_name: longer}, weights=weights, states=states)


def _index_in(path: str, stack_path: str) -> int | None:
    head, _, rest = path.partition(stack_path + ".")
    return int(rest) if head == "" and rest.isdigit() else None


def _require_chain(graph: Graph, first: Call, second: Call, tail: tuple[Call, ...], stack: Stack) -> None:
    """The first layer's results may only feed the second; the tail may only read carried results."""
    carried = {second.inputs[p] for p in range(len(second.inputs)) if second.inputs[p] in first.outputs}
    later = {value for call in tail for value in call.inputs} | set(graph.outputs.values())
    if later & set(first.outputs):
        raise NotUniformError(f"{stack.path}: the result of layer 0 is used after the stack")
    slots = {first.outputs.index(value) for value in carried}
    if any(second.outputs.index(v) not in slots for v in later & set(second.outputs)):
        raise NotUniformError(f"{stack.path}: a result of the last layer is not passed from layer to layer")


def _layer_call(first: Call, second: Call, previous: Call, index: int, stack: Stack) -> Call:
    inputs = []
    for value0, value1 in zip(first.inputs, second.inputs, strict=True):
        if value1 in first.outputs:
            inputs.append(previous.outputs[first.outputs.index(value1)])
        elif value0 == value1:
            inputs.append(value0)
        else:
            inputs.append(_reindexed(value0, value1, index, stack))
    outputs = tuple(f"tmp:{stack.path}.{index}.{slot}" for slot in range(len(first.outputs)))
    return Call(subprogram=first.subprogram, inputs=tuple(inputs), outputs=outputs, module_path=f"{stack.path}.{index}")


def _reindexed(value0: str, value1: str, index: int, stack: Stack) -> str:
    """Name the argument of layer `index`, given the names in layers 0 and 1."""
    for before, after in ((f"{stack.path}.", "."), ("", "")):
        pattern0, pattern1 = (f"{before}{i}{after}" for i in (0, 1))
        if before and pattern0 in value0 and value0.replace(pattern0, pattern1, 1) == value1:
            return value0.replace(pattern0, f"{before}{index}{after}", 1)
        stem0, _, number0 = value0.rpartition(".")
        stem1, _, number1 = value1.rpartition(".")
        if not before and value0.startswith("state:") and stem0 == stem1 and (number0, number1) == ("0", "1"):
            return f"{stem0}.{index}"
    raise NotUniformError(f"{stack.path}: {value0} and {value1} do not follow the layer's index")


def _all_layers(program: Program, graph: Graph, second: Call, stack: Stack):  # type: ignore[no-untyped-def]
    """Declare weights and states of the added layers with the specs of layer 1."""
    weights: dict[str, TensorSpec] = dict(program.weights)
    states: dict[str, TensorSpec] = dict(program.states)
    for call in graph.calls:
        if _index_in(call.module_path, stack.path) is None:
            continue
        for value, model in zip(call.inputs, second.inputs, strict=True):
            kind, _, name = value.partition(":")
            if kind == "const" and name not in program.constants:
                raise NotUniformError(f"{stack.path}: constant {name} differs from layer to layer")
            if kind == "weight":
                weights[name] = program.weights[model.partition(":")[2]]
            if kind == "state":
                states[name] = program.states[model.partition(":")[2]]
    return weights, states
