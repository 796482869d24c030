"""Run operations of a TorchScript graph one by one: on example inputs, and while a segment is captured.

Operators are called by the overload of their schema, so a captured graph has the operators of the traced one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...upstream.torch import Graph, create_function_from_graph, parse_schema, should_allow_numbers_as_tensors
from ..contexts import IS_DRY, setting
from . import packed
from .graph import CALL, Operation, Program, Value

FLOAT16, FLOAT32 = 5, 6
"""Numbers of dtypes in TorchScript."""

Environment = dict[Value, Any]
"""What values are in one run."""


def run(operation: Operation, environment: Environment, *, on_core: bool = False, half: bool = False) -> None:
    """Run one operation, and add its results; a core computes some in its own way, `half` makes float16 of float32."""
    arguments = [value_of(value, environment) for value in operation.inputs]
    if half and (schema := schema_of(operation)) is not None:
        names = [argument.name for argument in schema.arguments]
        arguments = [FLOAT16 if n == "dtype" and a == FLOAT32 else a for n, a in zip(names, arguments, strict=True)]
    own = packed.on_core(operation) if on_core else None
    result = _call(operation, arguments) if own is None else own(*arguments)
    results = [result] if len(operation.outputs) == 1 else list(result)
    environment.update(zip(operation.outputs, results, strict=True))


def value_of(value: Value, environment: Mapping[Value, Any]) -> Any:
    """Return what a value is."""
    if value.is_constant:
        return value.literal()
    if value.weight is not None and value not in environment:
        return value.weight
    return environment[value]


def run_example(program: Program, inputs: Sequence[Any]) -> Environment:
    """Run a model on its example inputs, which are not changed, and return every value.

    A model that is on a core already gives tensors of the right shapes without running.
    """
    environment: Environment = dict(zip(program.inputs, map(_copied, inputs), strict=True))
    with torch.no_grad(), setting(IS_DRY, True):
        for operation in program.operations:
            run(operation, environment)
            for value in operation.outputs:  # later operations may write to it
                if isinstance(environment[value], torch.Tensor) and environment[value].dim() == 0:
                    environment[value] = environment[value].clone()
    return environment


def _copied(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return type(value)(map(_copied, value)) if isinstance(value, (tuple, list)) else value


def _call(operation: Operation, arguments: list[Any]) -> Any:
    if operation.kind == CALL:
        return getattr(operation.module, operation.method)(*arguments)
    if operation.kind in _PRIMITIVES:
        return _PRIMITIVES[operation.kind](arguments)
    schema = schema_of(operation)
    if schema is None or not operation.kind.startswith("aten::"):
        return single_function(operation)(*arguments)
    operator = _operator(schema.name, schema.overload_name)
    if should_allow_numbers_as_tensors(operation.kind.removeprefix("aten::")):
        arguments = [
            argument.item()
            if value.is_constant and isinstance(argument, torch.Tensor) and not argument.dim()
            else argument
            for value, argument in zip(operation.inputs, arguments, strict=True)
        ]
    positional = [a for a, p in zip(arguments, schema.arguments, strict=True) if not p.kwarg_only]
    named = {p.name: a for a, p in zip(arguments, schema.arguments, strict=True) if p.kwarg_only}
    return operator(*positional, **named)


def schema_of(operation: Operation) -> Any:
    """Return the schema of an operator, or None for primitives of TorchScript."""
    text = operation.node.schema()
    return None if text.startswith("(no schema)") or "(" not in text else _parsed(text)


@functools.cache
def _parsed(text: str) -> Any:
    return parse_schema(text)


@functools.cache
def _operator(name: str, overload: str) -> Any:
    namespace, _, short = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), short), overload or "default")


def single_function(operation: Operation) -> Any:
    """Return one operation as a TorchScript function of its inputs."""
    graph = Graph()
    inputs = {}
    for position, value in enumerate(operation.node.inputs()):
        inputs[value.unique()] = graph.addInput(f"input_{position}")
        inputs[value.unique()].setType(value.type())
    node = graph.appendNode(graph.createClone(operation.node, lambda value: inputs[value.unique()]))
    for value in node.outputs():
        graph.registerOutput(value)
    if len(list(node.outputs())) > 1:
        graph.makeMultiOutputIntoTuple()
    return create_function_from_graph("single", graph)


_PRIMITIVES: Mapping[str, Callable[[list[Any]], Any]] = {
    "prim::ListConstruct": list,
    "prim::TupleConstruct": tuple,
    "prim::ListUnpack": lambda arguments: arguments[0] if len(arguments[0]) > 1 else arguments[0][0],
    "prim::TupleUnpack": lambda arguments: arguments[0] if len(arguments[0]) > 1 else arguments[0][0],
    "aten::__getitem__": lambda arguments: arguments[0][arguments[1]],
    "prim::NumToTensor": lambda arguments: torch.tensor(arguments[0]),
    "prim::DictConstruct": lambda arguments: dict(zip(arguments[::2], arguments[1::2], strict=True)),
}
