"""A graph of device tensors as a graph of host tensors over the same bytes, and back.

Inductor makes host code for CPU tensors only. So devices in the graph become "cpu", inputs are passed as host views of
device memory, and results come back as device tensors; a result that is a view of an input keeps that input's storage.
It knows nothing of checks or options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from .. import library

HostFunction = Callable[[list[Any]], Sequence[Any]]
"""A compiled graph as AOTAutograd calls it: one list of inputs, which the callee empties."""

_RANDOM = ("inductor_seed", "inductor_random", "inductor_randint")


def is_device_tensor(value: Any) -> bool:
    """Whether a value is a tensor of the device, real or fake."""
    return isinstance(value, torch.Tensor) and value.device.type == "neuron"


def to_host(value: Any) -> Any:
    """A host tensor for a device tensor: over the same bytes where it is real, of the same layout where it is fake."""
    if not is_device_tensor(value):
        return value
    mode = getattr(value, "fake_mode", None)
    if mode is None:
        return torch.ops.neuron_sim.alias_cpu(value)
    with mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")


def move_to_host(graph_module: fx.GraphModule) -> None:
    """Replace the device by the CPU everywhere in a graph, in place."""

    def host_device(device: torch.device) -> torch.device:
        return torch.device("cpu") if device.type == "neuron" else device

    for node in graph_module.graph.nodes:
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
    graph_module.recompile()


def draws_random_numbers(graph_module: fx.GraphModule) -> bool:
    """Whether running the graph moves a random generator."""
    return any(
        torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        or any(r in str(node.target) for r in _RANDOM)
        for node in graph_module.graph.nodes
        if node.op == "call_function"
    )


def on_device(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[Any],
    make: Callable[[fx.GraphModule, list[Any]], HostFunction],
) -> HostFunction:
    """Have `make` compile the host's form of a graph, and return a function of device tensors.

    Args:
        graph_module: a graph of AOTAutograd; it is changed in place.
        example_inputs: its fake inputs.
        make: compiles a host graph for fake host inputs.
    """
    returned = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    results = [is_device_tensor(node.meta.get("val")) if isinstance(node, fx.Node) else False for node in returned]
    inputs = [is_device_tensor(value) for value in example_inputs]
    random = draws_random_numbers(graph_module)
    shared = _shared_with_results(graph_module, returned)
    move_to_host(graph_module)
    compiled = make(graph_module, [to_host(value) for value in example_inputs])
    if not any(inputs) and not any(results):
        return compiled
    return _boxed(_DeviceFunction(compiled, inputs, results, shared, random))


def _shared_with_results(graph_module: fx.GraphModule, returned: Sequence[Any]) -> list[bool]:
    """For each input, whether a result may be over its bytes."""

    def storage(node: Any) -> int | None:
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        return value.untyped_storage()._cdata if value is not None and is_device_tensor(value) else None

    results = {storage(node) for node in returned} - {None}
    return [storage(node) in results for node in graph_module.graph.find_nodes(op="placeholder")]


class _DeviceFunction:
    """Passes device tensors to host code and brings results back.

    Host code frees an input when it has read it last, so nothing here may hold one for longer: what a forward saved for
    its backward would stay until the end. Only inputs that results may share bytes with are kept.
    """

    def __init__(
        self, compiled: HostFunction, inputs: list[bool], results: list[bool], shared: list[bool], random: bool
    ) -> None:
        self._compiled, self._inputs, self._results, self._random = compiled, inputs, results, random
        self._shared = shared

    def __call__(self, arguments: list[Any]) -> list[Any]:
        ops = torch.ops.neuron_sim
        given = [value for value, ours in zip(arguments, self._inputs, strict=True) if ours]
        index = given[0].device.index if given else torch.neuron.current_device()
        hosted = ops.alias_cpu_list(given)
        hosted.reverse()
        host = [hosted.pop() if ours else value for value, ours in zip(arguments, self._inputs, strict=True)]
        given = [value for value, shared in zip(arguments, self._shared, strict=True) if shared]
        arguments.clear()
        set_for_device = library.load().neuron_set_for_device
        before = set_for_device(1)
        try:
            results = list(self._with_generator(host, index) if self._random else self._compiled(host))
        finally:
            set_for_device(before)
        places = [i for i, ours in enumerate(self._results) if ours and isinstance(results[i], torch.Tensor)]
        for place, tensor in zip(
            places, ops.alias_neuron_list([results[i] for i in places], given, index), strict=True
        ):
            results[place] = tensor
        return results

    def _with_generator(self, host: list[Any], index: int) -> Sequence[Any]:
        """Host code draws from the CPU's default generator: lend it the core's, and put its own state back."""
        default = torch.default_generator
        state = default.get_state()
        default.set_state(torch.ops.neuron_sim.engine(index).get_state())
        try:
            return self._compiled(host)
        finally:
            default.set_state(state)


def _boxed(function: Any) -> HostFunction:
    """Mark a function as one that takes a single list and may empty it (AOTAutograd's calling convention)."""
    function._boxed_call = True
    return function
