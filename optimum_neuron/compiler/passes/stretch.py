"""Pass: give a stack that was captured short its full number of layers.

`stacks.py` has proved, on records of the whole and of the short model, that the layers which are left out repeat the
last `period` of the captured ones. Here that is written into the graph: an added layer makes the calls of its model
layer, with its own weights and state, the results of the previous layer, and all other arguments unchanged. Before: the
layers of the stack are consecutive calls. After: so are all layers; those at its end that repeat none keep their calls.
If the graph does not fit that picture the pass declines with a reason, and the model is captured whole.
"""

from __future__ import annotations

import dataclasses

from ..ir import Call, Program
from ..stacks import Stack


class NotUniformError(Exception):
    """The captured layers do not repeat; the message says where. Never reaches a user."""


def stretch(program: Program, graph_name: str, stack: Stack) -> Program:
    """Repeat the last `stack.period` captured layers until the graph has all layers of the stack."""
    graph, num_captured = program.graphs[graph_name], stack.num_first
    paths = tuple(call.module_path for call in graph.calls)
    layer_paths = stack.layers[:num_captured]
    places = [index for index, path in enumerate(paths) if path in layer_paths]
    if tuple(paths[index] for index in places) != layer_paths or places[-1] - places[0] >= num_captured:
        raise NotUniformError(f"{stack.path}: the layers are not consecutive calls")
    start = places[0]
    captured, tail = graph.calls[start : start + num_captured], graph.calls[start + num_captured :]
    before, last = num_captured - stack.period - 1, num_captured - 1
    if captured[before].subprogram != captured[last].subprogram:
        raise NotUniformError(f"{stack.path}: layers {before} and {last} have different graphs")
    layers, weights, states = list(captured), dict(program.weights), dict(program.states)
    for index in range(num_captured, stack.end):
        model = num_captured - stack.period + (index - num_captured) % stack.period
        layers.append(_repeated(captured, model, layers[-1], index, stack))
        for value, like in zip(layers[-1].inputs, captured[model].inputs, strict=True):
            kind, _, name = value.partition(":")
            if kind == "weight":
                weights[name] = weights[like.partition(":")[2]]
            elif kind == "state":
                states[name] = states[like.partition(":")[2]]
    final = dict(zip(captured[last].outputs, layers[-1].outputs, strict=True))
    renamed = tuple(dataclasses.replace(c, inputs=tuple(final.get(v, v) for v in c.inputs)) for c in tail)
    outputs = {name: final.get(value, value) for name, value in graph.outputs.items()}
    longer = dataclasses.replace(graph, calls=(*graph.calls[:start], *layers, *renamed), outputs=outputs)
    return dataclasses.replace(program, graphs={**program.graphs, graph_name: longer}, weights=weights, states=states)


def _repeated(captured: tuple[Call, ...], model: int, previous: Call, index: int, stack: Stack) -> Call:
    """The call of layer `index`, which follows `previous` as layer `model` follows the one before it."""
    carried = dict(zip(captured[model - 1].outputs, previous.outputs, strict=True))
    inputs = tuple(carried.get(value) or _reindexed(value, model, index, stack) for value in captured[model].inputs)
    outputs = tuple(f"tmp:{stack.path}.{index}.{slot}" for slot in range(len(captured[model].outputs)))
    return dataclasses.replace(captured[model], inputs=inputs, outputs=outputs, module_path=f"{stack.path}.{index}")


def _reindexed(value: str, model: int, index: int, stack: Stack) -> str:
    """Name the value that layer `index` uses where layer `model` uses `value`: its own weight or state, or the same."""
    kind, _, name = value.partition(":")
    own_weights = f"{stack.path}.{model}."
    if kind == "weight" and name.startswith(own_weights):
        return f"weight:{stack.path}.{index}.{name.removeprefix(own_weights)}"
    what, _, number = name.rpartition(".")
    return f"state:{what}.{index}" if kind == "state" and number == str(model) else value
