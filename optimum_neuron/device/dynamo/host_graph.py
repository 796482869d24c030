"""A graph of device tensors as a graph of host tensors over the same bytes, and back.

Inductor makes host code for CPU tensors only. So devices in the graph become "cpu", and `border.py` passes inputs as
host views of device memory and returns results as device tensors; a result that is a view of an input keeps that
input's storage. It does not depend on checks or options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ...compiler.rules import operator_of
from ...upstream.torch import FakeTensor, OpOverload, disable_current_modes, tree_map_only
from .border import Border, HostFunction, attach
from .calls import Calls

_RANDOM = ("inductor_seed", "inductor_random", "inductor_randint")


def is_device_tensor(value: object) -> bool:
    """Return whether a value is a tensor of the device, real or fake."""
    return isinstance(value, torch.Tensor) and value.device.type == "neuron"


def to_host(value: Any) -> Any:
    """A host tensor for a device tensor: over the same bytes where it is real, of the same layout where it is fake."""
    if not is_device_tensor(value):
        return value
    if not isinstance(value, FakeTensor):
        # AOTAutograd compiles under a fake mode, but a constant of the graph is real.
        with disable_current_modes():
            return torch.ops.neuron_sim.alias_cpu(value)
    with value.fake_mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")


def move_to_host(graph_module: fx.GraphModule) -> None:
    """Replace the device by the CPU everywhere in a graph, in place."""

    def host_device(device: torch.device) -> torch.device:
        return torch.device("cpu") if device.type == "neuron" else device

    for node in graph_module.graph.nodes:
        # Between host tensors a transfer is no copy, and a result could share the memory of an input.
        if node.target is torch.ops.prims.device_put.default:
            node.target, node.args, node.kwargs = torch.ops.aten.clone.default, node.args[:1], {}
        # A gradient that is zero has no memory, so the device could not hold it.
        elif str(node.target) == "aten._efficientzerotensor.default":
            node.target = torch.ops.aten.zeros.default
        node.args = tree_map_only(torch.device, host_device, node.args)
        node.kwargs = tree_map_only(torch.device, host_device, node.kwargs)
        if node.op == "get_attr":
            held = getattr(graph_module, node.target)
            if isinstance(held, fx.GraphModule):
                move_to_host(held)
            elif is_device_tensor(held):
                setattr(graph_module, node.target, to_host(held))
        if "val" in node.meta:
            node.meta["val"] = tree_map_only(torch.Tensor, to_host, node.meta["val"])
    for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.histc.default):
        _count_as_floats(node)
    graph_module.recompile()


def _count_as_floats(node: fx.Node) -> None:
    """Let a histogram of integers count float64 and cast its result, as the device does: the CPU counts floats only."""
    values, counts = node.args[0], node.meta["val"]
    if counts.dtype.is_floating_point:
        return
    graph, convert = node.graph, torch.ops.prims.convert_element_type.default
    with graph.inserting_before(node):
        widened = graph.call_function(convert, (values, torch.float64))
    with graph.inserting_after(node):
        narrowed = graph.call_function(convert, (node, counts.dtype))
    widened.meta["val"], narrowed.meta["val"] = values.meta["val"].to(torch.float64), counts
    node.replace_all_uses_with(narrowed, delete_user_cb=lambda user: user is not narrowed)
    node.meta["val"] = counts.to(torch.float64)
    node.update_arg(0, widened)


def draws_random_numbers(graph_module: fx.GraphModule) -> bool:
    """Return whether running the graph moves a random generator."""
    operators = [operator_of(node) for node in graph_module.graph.nodes if node.op == "call_function"]
    return any(
        (isinstance(operator, OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags)
        or any(name in str(operator) for name in _RANDOM)
        for operator in operators
    )


def border_of(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    complex_inputs: tuple[int, ...] = (),
    complex_results: tuple[int, ...] = (),
) -> Border:
    """Find which inputs and results of a graph of AOTAutograd are device tensors, before `move_to_host`.

    Args:
        complex_inputs: places of inputs that `complex_pairs` wrote as pairs.
    """
    returned = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    return Border(
        inputs=tuple(is_device_tensor(value) for value in example_inputs),
        results=tuple(isinstance(node, fx.Node) and is_device_tensor(node.meta.get("val")) for node in returned),
        shared=tuple(_shared_with_results(graph_module, returned)),
        random=draws_random_numbers(graph_module),
        complex_inputs=complex_inputs,
        complex_results=complex_results,
    )


def on_device(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    border: Border,
    calls: Calls,
    make: Callable[[fx.GraphModule, list[Any]], HostFunction],
) -> HostFunction:
    """Have `make` compile the host's form of a graph, and return a function of device tensors.

    Args:
        graph_module: a graph of AOTAutograd; it is changed in place.
        border: border of the graph, from `border_of`.
        make: compiles a host graph for fake host inputs.
    """
    move_to_host(graph_module)
    return attach(make(graph_module, [to_host(value) for value in example_inputs]), border, calls)


def _shared_with_results(graph_module: fx.GraphModule, returned: Sequence[Any]) -> list[bool]:
    """For each input, whether a result may be over its bytes."""

    def storage(node: fx.Node) -> int | None:
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        return value.untyped_storage()._cdata if value is not None and is_device_tensor(value) else None

    results = {storage(node) for node in returned} - {None}
    return [storage(node) in results for node in graph_module.graph.find_nodes(op="placeholder")]
