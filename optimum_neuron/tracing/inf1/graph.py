"""A TorchScript graph as a list of operations: methods of traced modules are inlined, each with the path of its module.

Modules that TorchScript itself compiled, such as a model that is on a core already, stay one operation. It does not
know what a core supports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ...errors import ConfigError
from ...upstream.torch import Graph, jit_pass_inline

CALL = "prim::CallMethod"
"""Kind of an operation that calls a module which is not inlined."""

_CONSTRUCTS = ("prim::ListConstruct", "prim::TupleConstruct")
_UNPACKS = ("prim::ListUnpack", "prim::TupleUnpack")


@dataclasses.dataclass(eq=False, repr=False)
class Value:
    """Something that operations read: an input, a weight, a constant, or a result."""

    type: Any
    """TorchScript type."""
    producer: Operation | None = None
    """Operation that makes it, None for inputs, weights, and constants."""
    constant: Any = None
    """Node of a constant, or the value of an attribute."""
    is_constant: bool = False
    weight: torch.Tensor | None = None
    """Parameter or buffer."""
    name: str = ""
    """Name of a weight in the user's model, or of an input."""
    module: Any = None
    """Module, which only calls of methods read."""
    elements: tuple[Value, ...] | None = None
    """Values that a list or tuple is made of, where the graph says so."""
    users: list[Operation] = dataclasses.field(default_factory=list)

    @property
    def is_tensor(self) -> bool:
        return self.type.kind() == "TensorType"

    def literal(self) -> Any:
        """Value of a constant."""
        return self.constant.output().toIValue() if hasattr(self.constant, "output") else self.constant


@dataclasses.dataclass(eq=False, repr=False)
class Operation:
    """One node of the graph, in the order in which it runs."""

    kind: str
    """For example "aten::add"."""
    node: Any
    """Node of torch's graph."""
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    name: tuple[str, ...]
    """Class names of the modules around it, outermost first; what `subgraph_builder_function` reads."""
    module: Any = None
    """Called module, for `CALL`."""
    method: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """The operations of a model with its inputs and outputs."""

    name: str
    """Class of the model, or name of the function."""
    operations: tuple[Operation, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def read_graph(traced: Any) -> Program:
    """Read the result of `torch.jit.trace`, or any ScriptModule."""
    reader, name = _Reader(), tuple[str, ...]()
    if isinstance(traced, torch.jit.ScriptModule):
        graph = traced.graph
        own, *parameters = graph.inputs()
        root = Value(own.type(), module=traced)
        name = (str(getattr(traced, "original_name", type(traced).__name__)),)
    else:
        graph, parameters, root = traced.graph, list(traced.graph.inputs()), None
    title = name[0] if name else str(traced.name)
    inputs = tuple(Value(value.type(), name=_identifier(value, i)) for i, value in enumerate(parameters))
    outputs = reader.read(graph, (root, *inputs) if root is not None else inputs, "", name)
    for operation in reader.operations:
        for value in operation.inputs:
            value.users.append(operation)
    return Program(name=title, operations=tuple(reader.operations), inputs=inputs, outputs=outputs)


class _Reader:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._weights: dict[int, Value] = {}

    def read(
        self, graph: torch.Graph, arguments: Sequence[Value], path: str, name: tuple[str, ...]
    ) -> tuple[Value, ...]:
        """Append the operations of a graph, and return its outputs."""
        values = dict(zip((value.unique() for value in graph.inputs()), arguments, strict=True))
        for node in graph.nodes():
            inputs = tuple(values[value.unique()] for value in node.inputs())
            outputs = self._outputs(node, inputs, path, name)
            values.update(zip((value.unique() for value in node.outputs()), outputs, strict=True))
        return tuple(values[value.unique()] for value in graph.outputs())

    def _outputs(
        self, node: torch.Node, inputs: tuple[Value, ...], path: str, name: tuple[str, ...]
    ) -> tuple[Value, ...]:
        kind = node.kind()
        if kind == "prim::Constant":
            return (Value(node.output().type(), constant=node, is_constant=True),)
        if kind == "prim::GetAttr":
            return (self._attribute(node, inputs[0]),)
        if kind in _UNPACKS and inputs[0].elements is not None:
            return inputs[0].elements
        if kind == CALL and _is_traced(inputs[0].module, node.s("name")):
            child = inputs[0].module
            inner = f"{path}.{inputs[0].name}" if path else inputs[0].name
            names = (*name, str(child.original_name))
            return self.read(child._c._get_method(node.s("name")).graph, inputs, inner, names)
        if kind == "prim::CallFunction":
            return self.read(_inlined(node, inputs[0]), inputs[1:], path, name)
        method, module = ("", None) if kind != CALL else (node.s("name"), inputs[0].module)
        read = inputs if module is None else inputs[1:]
        if any(value.module is not None for value in read) or next(iter(node.blocks()), None) is not None:
            raise _not_straight(node, name)
        operation = Operation(kind, node, read, (), name, module=module, method=method)
        operation.outputs = tuple(Value(value.type(), producer=operation) for value in node.outputs())
        if kind in _CONSTRUCTS:
            operation.outputs[0].elements = inputs
        self.operations.append(operation)
        return operation.outputs

    def _attribute(self, node: torch.Node, owner: Value) -> Value:
        name = node.s("name")
        found, type_ = getattr(owner.module, name), node.output().type()
        full = f"{owner.name}.{name}" if owner.name else name
        if isinstance(found, torch.jit.ScriptModule):
            return Value(type_, module=found, name=full)
        if isinstance(found, torch.Tensor):
            return self._weights.setdefault(id(found), Value(type_, weight=found, name=full))
        return Value(type_, constant=found, is_constant=True)


def _inlined(call: torch.Node, function: Value) -> torch.Graph:
    """Return the graph of the function that a node calls, which TorchScript compiled."""
    graph = Graph()
    made = {value.unique(): graph.addInput() for value in list(call.inputs())[1:]}
    for value in list(call.inputs())[1:]:
        made[value.unique()].setType(value.type())
    callee = graph.appendNode(graph.createClone(function.constant, lambda value: value)).output()
    made[next(call.inputs()).unique()] = callee
    clone = graph.appendNode(graph.createClone(call, lambda value: made[value.unique()]))
    for value in clone.outputs():
        graph.registerOutput(value)
    jit_pass_inline(graph)
    return graph


def _is_traced(module: Any, method: str) -> bool:
    """Return whether a method is a straight list of operations, as tracing makes it."""
    if getattr(module, "original_name", "") in ("NeuronModel", "BucketModel"):
        return False
    return all(next(iter(node.blocks()), None) is None for node in module._c._get_method(method).graph.nodes())


def _not_straight(node: torch.Node, name: Iterable[str]) -> ConfigError:
    place = ".".join(name) or "the function"
    message = f"{place} has control flow of TorchScript ({node.kind()}), which cannot be divided into segments."
    hint = "Trace the parts without control flow, and script the module around them."
    return ConfigError(message, hint=hint, kind=node.kind(), module=place)


def _identifier(value: Any, index: int) -> str:
    name = value.debugName().partition(".")[0]
    return name if name.isidentifier() else f"input_{index}"
