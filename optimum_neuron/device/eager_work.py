"""The work of one eager operator: that of a compiled graph with this operator alone.

The graph is built on fake tensors and counted as graphs of torch.compile are, so that the same operator has the same
time in both. It is built by hand, as torch's tracers patch modules of the whole process, and this runs beside the
program that is watched.

    work = work_of_operator('["aten::relu","",[{"dtype":"float32","size":[4],"stride":[1]}]]')
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from ..compiler import base_of
from ..compiler.rules import find_rule
from ..simulator.work import GraphWork, Step, Work, work_on_device
from ..upstream.torch import DisableAutocast, FakeTensorMode

NO_WORK = ("aten::_local_scalar_dense", "aten::equal", "aten::resize_", "aten::set_")
"""Operators whose result is a value on the host, or that change where a tensor lies."""

MOST_SHAPES = 6
"""Shapes in the name of an operator: optimizers take all parameters in one call."""
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_")
"""Operators that write their first argument without reading it, besides random number generators."""


def work_of_operator(kind: str) -> GraphWork | None:
    """Return the work of one call of an operator (JSON of csrc/census.h), or None if it uses no core.

    An operator of a package, and one whose result has a size that depends on values, are of unknown work.
    """
    name, overload, arguments = json.loads(kind)
    rule = find_rule(f"{name}.{overload or 'default'}".replace("::", ".", 1))
    if name in NO_WORK or (rule is not None and rule.name == "view"):
        return None
    title = " ".join([f"{name.removeprefix('aten::')}{'.' if overload else ''}{overload}", *_short(_shapes(arguments))])
    namespace, _, packet = name.partition("::")
    # Everything that can go wrong here is an operator that fakes cannot run: sizes that depend on values, and arguments
    # such as process groups. The simulator says which operators it does not know.
    try:
        if namespace != "aten":
            raise LookupError(f"{name} is an operator of a package")
        target = getattr(getattr(torch.ops.aten, packet), overload or "default")
        work = work_on_device(_graph(target, arguments), name=title)
    except Exception:
        step = Step(name=f"{namespace}.{packet}", work=Work(num_unknown=1))
        return GraphWork(name=title, steps=(step,), unknown=(step.name,))
    return work


def _short(shapes: Iterable[str]) -> list[str]:
    """Return tensors for a title: equal neighbors once with their number, and the first of many."""
    counts = [(shape, len(list(equal))) for shape, equal in itertools.groupby(shapes)]
    shown = [shape if count == 1 else f"{count}x{shape}" for shape, count in counts[:MOST_SHAPES]]
    num_more = sum(count for _, count in counts[MOST_SHAPES:])
    return [*shown, f"and {num_more} more"] if num_more else shown


def _shapes(arguments: list[Any]) -> Iterator[str]:
    for value in arguments:
        if isinstance(value, dict):
            yield f"{value['dtype']}{value['size']}".replace(" ", "")
        elif isinstance(value, list):
            yield from _shapes(value)


def _graph(target: Any, arguments: list[Any]) -> fx.GraphModule:
    """A graph with one operator, as AOTAutograd makes it: written values are copied into its inputs at the end."""
    graph = fx.Graph()
    schema = target._schema.arguments
    with FakeTensorMode() as mode, torch.no_grad(), DisableAutocast():
        overwrites = target._schema.name in _OVERWRITES or torch.Tag.nondeterministic_seeded in target.tags
        inputs = {
            argument.name: _input(graph, mode, value, is_read=not (overwrites and _is_written(argument)))
            for argument, value in zip(schema, arguments, strict=True)
        }
        target = _without_out(target)
        schema = target._schema.arguments
        positional = tuple(inputs[argument.name] for argument in schema if not argument.kwarg_only)
        named = {argument.name: inputs.get(argument.name) for argument in schema if argument.kwarg_only}
        call = graph.call_function(
            target, positional, {name: value for name, value in named.items() if value is not None}
        )
        args, kwargs = map_arg((call.args, call.kwargs), lambda node: node.meta["val"])
        call.meta["val"] = target(*args, **kwargs)
    written = [node for argument in schema if _is_written(argument) for node in _nodes(inputs[argument.name])]
    for node in written:
        graph.call_function(torch.ops.aten.copy_.default, (node, node)).meta["val"] = node.meta["val"]
    graph.output([result for result in _results(graph, call) if base_of(result) not in written])
    return fx.GraphModule(torch.nn.Module(), graph)


def _input(graph: fx.Graph, mode: FakeTensorMode, value: object, *, is_read: bool) -> Any:
    """An argument in the graph; a tensor that is only written is no input of it."""
    if isinstance(value, list):
        return [_input(graph, mode, item, is_read=is_read) for item in value]
    if not isinstance(value, dict):
        return value
    dtype = getattr(torch, value["dtype"])
    node = (
        graph.placeholder(f"input_{len(graph.nodes)}")
        if is_read
        else graph.call_function(torch.ops.aten.empty.memory_format, (value["size"],), {"dtype": dtype})
    )
    with mode:
        node.meta["val"] = torch.empty_strided(value["size"], value["stride"], dtype=dtype, device="cpu")
    return node


def _without_out(target: Any) -> Any:
    """The overload that returns the result of an `out=` overload; any other operator unchanged."""

    needed = [argument for argument in target._schema.arguments if not argument.is_out]
    if len(needed) == len(target._schema.arguments):
        return target
    overloads = [getattr(target.overloadpacket, name) for name in target.overloadpacket.overloads()]
    return next((one for one in overloads if not one._schema.is_mutable and _takes(one, needed)), target)


def _takes(target: Any, needed: list[Any]) -> bool:
    """Return whether an operator can be called with these arguments alone."""
    taken = target._schema.arguments
    same = [(one.name, str(one.type)) for one in taken[: len(needed)]] == [(one.name, str(one.type)) for one in needed]
    return same and all(argument.has_default_value() for argument in taken[len(needed) :])


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _nodes(value: object) -> list[fx.Node]:
    if isinstance(value, list):
        return [node for item in value for node in _nodes(item)]
    return [value] if isinstance(value, fx.Node) else []


def _results(graph: fx.Graph, call: fx.Node) -> list[fx.Node]:
    """The tensors that an operator returns, each as a separate node."""
    if isinstance(call.meta["val"], torch.Tensor):
        return [call]
    results = []
    for index, value in enumerate(call.meta["val"] or ()):
        if isinstance(value, torch.Tensor):
            results.append(graph.call_function(operator.getitem, (call, index)))
            results[-1].meta["val"] = value
    return results
