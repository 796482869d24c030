"""Put the parts of a model together as a ScriptModule: segments are submodules, and the CPU's parts are functions.

The module has the parameters of the traced one. It is saved and loaded with `torch.jit`, which loads the segments.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...upstream.torch import Graph, TensorType, create_function_from_graph
from ..script import scripted
from .graph import Program, Value
from .parts import Part

_NUMBERS = itertools.count()


class SegmentedModel(nn.Module):
    """Submodules and weights of a divided model; `assemble` defines its call."""


def assemble(
    program: Program,
    parts: Sequence[Part],
    models: Mapping[Part, torch.jit.ScriptModule],
    example: Mapping[Value, Any],
    half: Collection[Value] = (),
) -> Any:
    """Return a model as a ScriptModule.

    Args:
        program: the model.
        parts: its parts, in order.
        models: the loaded program of each segment.
        example: values of the example inputs; sizes of what cores make are constants.
        half: values that are float16 on cores, and float32 in the model.
    """
    # A class of its own: TorchScript shares one type, and so one `forward`, among modules of a class.
    base, lines = type("SegmentedModel", (SegmentedModel,), {})(), list[str]()
    names: dict[Value, str] = {value: value.name for value in program.inputs}
    for index, part in enumerate(parts):
        if part.operations:
            names.update({v: names.get(v) or f"value_{len(names) + i}" for i, v in enumerate(part.outputs)})
        results = [names.get(value, "") for value in part.outputs]
        if part.place == "core":
            setattr(base, f"neuron_{index}", models[part])
            arguments = ", ".join(f"{names[value]}{'.half()' * (value in half)}" for value in part.inputs)
            lines.append(f"results_{index} = self.neuron_{index}([{arguments}])")
            lines += [f"{name} = results_{index}[{slot}]" for slot, name in enumerate(results)]
            continue
        if part.place == "call":
            (operation,) = part.operations
            setattr(base, f"module_{index}", operation.module)
            called = f"module_{index}" if operation.method == "forward" else f"module_{index}.{operation.method}"
            arguments = ", ".join(_argument(base, value, names, example) for value in operation.inputs)
            lines.append(f"{_targets(results)}self.{called}({arguments})")
            continue
        if not results or (part is parts[-1] and not part.operations and names.keys() >= set(part.outputs)):
            continue
        weights = [v for v in dict.fromkeys(v for o in part.operations for v in o.inputs) if v.weight is not None]
        weights += [value for value in part.outputs if value.weight is not None and value not in weights]
        read = (*part.inputs, *weights)
        setattr(base, f"cpu_{index}", cpu_function(part, read, example))
        cast = {value: ".float()" for value in half if part is not parts[-1]}
        arguments = ", ".join(f"{_argument(base, v, names, example)}{cast.get(v, '')}" for v in read)
        lines.append(f"{_targets(results)}self.cpu_{index}({arguments})")
    module = scripted(base.eval())
    parameters = ", ".join(f"{value.name}: {value.type.annotation_str}" for value in program.inputs)
    last = ", ".join(names[value] for value in program.outputs)
    body = "\n    ".join([*lines, f"return {last}"])
    module.define(f"def forward(self, {parameters}):\n    {body}\n")
    closing = [f"self.neuron_{index}.close()" for index, part in enumerate(parts) if part.place == "core"]
    module.define("\n    ".join(["def close(self) -> None:", *closing, "pass\n"]))
    return module


def _targets(results: Sequence[str]) -> str:
    return f"{', '.join(results)} = " if results else ""


def _argument(base: nn.Module, value: Value, names: Mapping[Value, str], example: Mapping[Value, Any]) -> str:
    """Return the expression of a value; a weight becomes a buffer."""
    if value.weight is None:
        return names.get(value) or repr(value.literal() if value.is_constant else example[value])
    name = f"weight_{value.name.replace('.', '_')}"
    if not hasattr(base, name):
        base.register_buffer(name, value.weight.detach())
    return f"self.{name}"


def cpu_function(part: Part, inputs: Sequence[Value], example: Mapping[Value, Any]) -> Any:
    """Return operations as a TorchScript function of these values; sizes that are fixed are those of the example."""
    graph = Graph()
    made: dict[Value, Any] = {}
    for position, value in enumerate(inputs):
        made[value] = graph.addInput(f"input_{position}")
        made[value].setType(_general(value.type))

    def read(value: Value) -> Any:
        if value in part.fixed:
            return graph.insertConstant(example[value])
        if value not in made and hasattr(value.constant, "output"):
            made[value] = graph.appendNode(graph.createClone(value.constant, lambda v: v)).output()
        elif value not in made:
            made[value] = graph.insertConstant(value.constant)
        return made[value]

    for operation in part.operations:
        values = dict(zip((v.unique() for v in operation.node.inputs()), map(read, operation.inputs), strict=True))
        node = graph.appendNode(graph.createClone(operation.node, lambda value, values=values: values[value.unique()]))
        for value, output in zip(operation.outputs, node.outputs(), strict=True):
            output.setType(_general(value.type))
            made[value] = output
    for value in part.outputs:
        graph.registerOutput(read(value))
    if len(part.outputs) > 1:
        graph.makeMultiOutputIntoTuple()
    return create_function_from_graph(f"__torch__.cpu_part_{next(_NUMBERS)}", graph)


def _general(type_: Any) -> Any:
    """Return a type without the shape of the example."""
    return TensorType.get() if type_.kind() == "TensorType" else type_
